from pylogseg.spark.frames import batches as batches
from pylogseg.spark.frames import read as read
from pylogseg.spark.frames import read_segments as read_segments
from pylogseg.spark.frames import register as register
from pylogseg.spark.frames import segments as segments
from pylogseg.spark.lagging import lag as lag
