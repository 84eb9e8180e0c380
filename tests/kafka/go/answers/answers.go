// Package answers is what the Go programs have in common: they print an answer in JSON for each capability
// (../clients/README.md has the fields).
package answers

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"time"
)

const (
	longest = 200
	// Quiet is how long nothing comes at the end of what is read.
	Quiet = 2 * time.Second
	// Patience is how long the first record may take.
	Patience = 20 * time.Second
	slowest  = 60 * time.Second
)

// Spec is what is asked.
type Spec struct {
	Capabilities []string
	Topics       map[string][]int32
	Legacy       map[string][]int32
	Times        []int64
	Reset        []any
	Group        string
	Suffix       string
	Refused      string
	Many         []any
	Truncated    []any
	Members      *Members
}

// Members is how many members of which group this process is.
type Members struct {
	Topic, Group, Static, Protocol string
	Count                          int
}

// Capability gives one answer.
type Capability func(bootstrap string, spec *Spec) (any, error)

// Row is one record; a timestamp below 0 is none.
func Row(partition int32, offset, timestamp int64, kind, epoch any, key, value []byte, headers []any) []any {
	row := []any{partition, offset, any(timestamp), kind, epoch, Data(key), Data(value), headers}
	if timestamp < 0 || kind == nil {
		row[2], row[3] = nil, nil
	}
	return row
}

// Data is bytes as JSON.
func Data(value []byte) any {
	if value == nil {
		return nil
	}
	if len(value) <= longest {
		return base64.StdEncoding.EncodeToString(value)
	}
	sum := sha1.Sum(value)
	return map[string]any{"len": len(value), "sha1": hex.EncodeToString(sum[:])}
}

// Sort sorts rows by partition and offset.
func Sort(rows [][]any) [][]any {
	sort.Slice(rows, func(i, j int) bool {
		one, other := rows[i], rows[j]
		if one[0].(int32) != other[0].(int32) {
			return one[0].(int32) < other[0].(int32)
		}
		return one[1].(int64) < other[1].(int64)
	})
	return rows
}

// Place is the topic and the numbers of a list in a specification.
func Place(list []any) (string, []int64) {
	var numbers []int64
	for _, each := range list[1:] {
		numbers = append(numbers, int64(each.(float64)))
	}
	return list[0].(string), numbers
}

// Main answers what the specification asks.
func Main(known map[string]Capability, members func(bootstrap string, asked *Members) (owned func() [][]int32, stop func())) {
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	spec := &Spec{}
	if err := json.Unmarshal(text, spec); err != nil {
		panic(err)
	}
	bootstrap := os.Args[1]
	if spec.Members != nil {
		owned, stop := members(bootstrap, spec.Members)
		watch(owned)
		stop()
		return
	}
	for _, name := range spec.Capabilities {
		capability, has := known[name]
		if !has {
			continue
		}
		began := time.Now()
		line := map[string]any{"capability": name}
		done := make(chan struct{})
		go func() {
			defer close(done)
			answer, err := capability(bootstrap, spec)
			if err != nil {
				line["error"] = err.Error()
			} else {
				line["answer"] = answer
			}
		}()
		select {
		case <-done:
		case <-time.After(slowest):
			line = map[string]any{"capability": name, "error": "Stalled: not back after 60 s"}
		}
		line["seconds"] = float64(time.Since(began).Milliseconds()) / 1000
		put(line)
	}
}

func put(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// watch prints what the members own whenever that changes, until standard input ends.
func watch(owned func() [][]int32) {
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	before := ""
	for {
		now := owned()
		for _, each := range now {
			sort.Slice(each, func(i, j int) bool { return each[i] < each[j] })
		}
		if text := fmt.Sprint(now); text != before {
			put(map[string]any{"owned": now})
			before = text
		}
		select {
		case <-over:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
