"""Which of several logs, or parts of logs, have the same history: by leader epochs, as brokers decide it."""
