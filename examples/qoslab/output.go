// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/seed81659283/nodeagent/nodetest"
)

// event is an entry in the log of a node under a policy.
type event struct {
	Policy    string  `json:"policy"`
	Seconds   float64 `json:"seconds"`
	Kind      string  `json:"kind"` // as in package nodetest: event, phase, ready, oom, exit or condition
	Pod       string  `json:"pod,omitempty"`
	Container string  `json:"container,omitempty"`
	Reason    string  `json:"reason"`
	Message   string  `json:"message,omitempty"`
}

// eventOf converts an entry of the log of a run under this policy.
func eventOf(policy string, e *nodetest.Entry) event {
	at := e.At.Round(time.Millisecond).Seconds()
	return event{Policy: policy, Seconds: at, Kind: e.Kind, Pod: e.Pod, Container: e.Container, Reason: e.Reason, Message: e.Message}
}

// eventsOf returns the events of all runs.
func eventsOf(runs []*outcome) (events []event) {
	for _, r := range runs {
		for i := range r.log {
			events = append(events, eventOf(r.policy.name, &r.log[i]))
		}
	}
	return events
}

// writeJSONLines writes each value as one line of JSON.
func writeJSONLines[T any](w io.Writer, values []T) error {
	encoder := json.NewEncoder(w)
	for i := range values {
		if err := encoder.Encode(&values[i]); err != nil {
			return err
		}
	}
	return nil
}

// writeEventsCSV writes events as CSV.
func writeEventsCSV(w io.Writer, events []event) error {
	return writeCSV(w, []string{"policy", "seconds", "kind", "pod", "container", "reason", "message"}, func(write func(...string)) {
		for _, e := range events {
			write(e.Policy, formatNumber(e.Seconds), e.Kind, e.Pod, e.Container, e.Reason, e.Message)
		}
	})
}

// writeSamplesCSV writes a line for each sample of each pod and of the node. The line of the node has an empty pod. Totals count since the start of
// the pod.
func writeSamplesCSV(w io.Writer, runs []*outcome) error {
	header := []string{
		"policy", "seconds", "pod", "class", "phase", "ready", "cpu_seconds", "throttled_seconds", "cpu_pressure_seconds", "memory_pressure_seconds",
		"working_set_bytes", "anon_bytes", "cache_bytes", "swap_bytes", "tasks", "disk_bytes", "cpu_request", "cpu_limit", "memory_request_bytes",
		"memory_limit_bytes", "memory_high_bytes",
	}
	return writeCSV(w, header, func(write func(...string)) {
		for _, r := range runs {
			for i := range r.samples {
				s := &r.samples[i]
				node := nodetest.PodSample{Usage: s.Node, CPULimit: float64(s.CPUs), MemoryLimit: s.Memory}
				for _, p := range append([]nodetest.PodSample{node}, s.Pods...) {
					write(append([]string{r.policy.name, formatNumber(s.At.Seconds())}, sampleColumns(&p)...)...)
				}
			}
		}
	})
}

// sampleColumns returns the columns of a pod, without policy and time.
func sampleColumns(p *nodetest.PodSample) []string {
	u := &p.Usage
	bytes := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{
		p.Name, string(p.Class), string(p.Phase), strconv.FormatBool(p.Ready), formatNumber(u.CPU.Seconds()), formatNumber(u.Throttled.Seconds()),
		formatNumber(u.CPUPressure.Seconds()), formatNumber(u.MemoryPressure.Seconds()), bytes(u.WorkingSet), bytes(u.Anon), bytes(u.Cache), bytes(u.Swap),
		bytes(u.Tasks), bytes(u.Disk), formatNumber(p.CPURequest), formatNumber(p.CPULimit), bytes(p.MemoryRequest), bytes(p.MemoryLimit), bytes(p.MemoryHigh),
	}
}

// formatNumber formats v with at most three decimals: a millisecond or a millicore.
func formatNumber(v float64) string {
	return strconv.FormatFloat(float64(int64(v*1000+0.5))/1000, 'f', -1, 64)
}

// writeCSV writes a header and the records that fill passes to write.
func writeCSV(w io.Writer, header []string, fill func(write func(...string))) error {
	c := csv.NewWriter(w)
	_ = c.Write(header) // Error returns the first error
	fill(func(record ...string) { _ = c.Write(record) })
	c.Flush()
	return c.Error()
}

// file is an output file: its name and a function that writes its content.
type file struct {
	name  string
	write func(w io.Writer) error
}

// writeFiles writes all files into a directory, which it creates.
func writeFiles(dir string, files []file) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		var b bytes.Buffer
		err := f.write(&b)
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, f.name), b.Bytes(), 0o644)); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}
