// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sort"
	"time"
)

// Trace is the usage of containers that was recorded elsewhere, for example in a cluster. Read it with [ReadTrace].
type Trace struct {
	tasks map[string]*tracedTask
}

// tracedTask is the usage of one container: the changes of each amount, by index of traceAmounts.
type tracedTask struct {
	begin  time.Duration // time of the first record
	series [len(traceAmounts)]series
}

// series is an amount over time, in the order of times.
type series []tracePoint

// tracePoint is an amount from a time on.
type tracePoint struct {
	at     time.Duration
	amount float64
}

// traceAmounts are the names of the amounts in errors, in the order of TraceFormat.amounts.
var traceAmounts = [...]string{"CPU", "Memory", "Cache", "Tasks", "Layer", "Logs"} //nolint:gochecknoglobals // constant

// TraceFormat describes the records of a trace: lines of comma-separated values, or of JSON objects. Names of columns are those of the
// header or of Columns; in JSON they are fields, and "average_usage.cpus" is the field cpus in the object average_usage.
type TraceFormat struct {
	JSON bool
	// Columns are the names of the columns of a CSV file without a header. Nil: the first line has them.
	Columns []string
	// Time is the column with the time of the record. TimeUnit is the duration that the number 1 has in this column. Both are required.
	Time     string
	TimeUnit time.Duration
	// Key has the columns that identify a container. Their values are joined by "/" to its key. Required.
	Key []string
	// The columns of [Usage]. A column without a name is not read.
	CPU, Memory, Cache, Tasks, Layer, Logs TraceColumn
}

// TraceColumn is a column with an amount.
type TraceColumn struct {
	Name string
	Unit float64 // CPUs, bytes or tasks that the number 1 means; zero: 1
}

// Google2011 is the format of the table task_usage of Google's trace clusterdata-2011-2 (version 2.1), whose files have no
// header. CPU and memory are fractions of the largest machine, whose size the caller passes; the trace does not contain it. Keys
// are "job ID/task index".
func Google2011(cpus float64, memory int64) TraceFormat {
	return TraceFormat{
		Columns: []string{
			"start time", "end time", "job ID", "task index", "machine ID", "CPU rate", "canonical memory usage", "assigned memory usage",
			"unmapped page cache", "total page cache", "maximum memory usage", "disk I/O time", "local disk space usage", "maximum CPU rate",
			"maximum disk IO time", "cycles per instruction", "memory accesses per instruction", "sample portion", "aggregation type", "sampled CPU usage",
		},
		Time: "start time", TimeUnit: time.Microsecond, Key: []string{"job ID", "task index"},
		CPU: TraceColumn{"CPU rate", cpus}, Memory: TraceColumn{"canonical memory usage", float64(memory)},
		Cache: TraceColumn{"unmapped page cache", float64(memory)},
	}
}

// Google2019 is the format of the table instance_usage of Google's trace clusterdata-2019 (version 3) as lines of JSON. CPU and
// memory are fractions of the largest machine, whose size the caller passes. Keys are "collection ID/instance index". Source:
// clusterdata_trace_format_v3.proto.
func Google2019(cpus float64, memory int64) TraceFormat {
	return TraceFormat{
		JSON: true, Time: "start_time", TimeUnit: time.Microsecond, Key: []string{"collection_id", "instance_index"},
		CPU: TraceColumn{"average_usage.cpus", cpus}, Memory: TraceColumn{"average_usage.memory", float64(memory)},
		Cache: TraceColumn{"page_cache_memory", float64(memory)},
	}
}

// Alibaba2018 is the format of container_usage.csv of Alibaba's cluster-trace-v2018, which has no header. CPU and memory are
// percentages of cpus and memory. For example, cpus is cpu_request of container_meta.csv divided by 100; the trace has only a
// normalized size of memory. Keys are container IDs. Source: schema.txt of the trace.
func Alibaba2018(cpus float64, memory int64) TraceFormat {
	return TraceFormat{
		Columns: []string{
			"container_id", "machine_id", "time_stamp", "cpu_util_percent", "mem_util_percent", "cpi", "mem_gps", "mpki", "net_in", "net_out", "disk_io_percent",
		},
		Time: "time_stamp", TimeUnit: time.Second, Key: []string{"container_id"},
		CPU: TraceColumn{"cpu_util_percent", cpus / 100}, Memory: TraceColumn{"mem_util_percent", float64(memory) / 100},
	}
}

// amounts returns the columns that contain amounts, such as CPU and Memory, in the order of traceAmounts.
func (f *TraceFormat) amounts() [len(traceAmounts)]TraceColumn {
	return [...]TraceColumn{f.CPU, f.Memory, f.Cache, f.Tasks, f.Layer, f.Logs}
}

// validate returns an error that names the first invalid field.
func (f *TraceFormat) validate() error {
	switch {
	case f.Time == "":
		return errors.New("TraceFormat.Time: required")
	case f.TimeUnit <= 0:
		return fmt.Errorf("TraceFormat.TimeUnit: %v is not positive", f.TimeUnit)
	case len(f.Key) == 0 || slices.Contains(f.Key, ""):
		return fmt.Errorf("TraceFormat.Key: %q: names of columns are required", f.Key)
	case f.JSON && len(f.Columns) > 0:
		return errors.New("TraceFormat.Columns: JSON has names in each line")
	}
	named := false
	for i, c := range f.amounts() {
		named = named || c.Name != ""
		if !(c.Unit >= 0) || math.IsInf(c.Unit, 0) {
			return fmt.Errorf("TraceFormat.%s.Unit: %g is not an amount", traceAmounts[i], c.Unit)
		}
	}
	if !named {
		return errors.New("TraceFormat: CPU, Memory or another amount is required")
	}
	return nil
}

// Limits of a trace, so that a wrong file is an error and no memory is used up.
const (
	maxTraceLine    = 1 << 20    // bytes
	maxTraceRecords = 20_000_000 // 480 MB of points for each amount
)

// ReadTrace reads a trace to its end. Records may have any order of times; of two records of a container at the same time, the
// later line counts. An empty or missing field leaves the amount unchanged.
//
// The error names the line, the column and the value: no number, negative or too large. Lines of more than 1 MiB and more than
// 20 million records are errors.
func ReadTrace(r io.Reader, f TraceFormat) (*Trace, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	t := &Trace{tasks: map[string]*tracedTask{}}
	if err := readRecords(r, &f, t.addRecord); err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	for _, task := range t.tasks {
		for i := range task.series {
			task.series[i] = task.series[i].normalize(task.begin)
		}
	}
	return t, nil
}

// traceRecord is one record. An amount of NaN is missing.
type traceRecord struct {
	key     string
	at      time.Duration
	amounts [len(traceAmounts)]float64
}

// addRecord adds the amounts of a record to its container.
func (t *Trace) addRecord(r *traceRecord) {
	task := t.tasks[r.key]
	if task == nil {
		task = &tracedTask{begin: r.at}
		t.tasks[r.key] = task
	}
	task.begin = min(task.begin, r.at)
	for i, amount := range r.amounts {
		if !math.IsNaN(amount) {
			task.series[i] = append(task.series[i], tracePoint{r.at, amount})
		}
	}
}

// normalize sorts the points by time and makes times relative to begin. It drops a point if another point with the same time
// follows, or if the amount is the same as before.
func (s series) normalize(begin time.Duration) series {
	slices.SortStableFunc(s, func(a, b tracePoint) int { return cmp.Compare(a.at, b.at) })
	var kept series
	for i, p := range s {
		if i+1 < len(s) && s[i+1].at == p.at {
			continue
		}
		if len(kept) > 0 && kept[len(kept)-1].amount == p.amount {
			continue
		}
		kept = append(kept, tracePoint{p.at - begin, p.amount})
	}
	return slices.Clip(kept)
}

// Keys returns the keys of the containers, sorted.
func (t *Trace) Keys() []string { return slices.Sorted(maps.Keys(t.tasks)) }

// Usage returns the usage of the container with this key, from its first record. Each amount stays until the next record, and the last amount stays
// forever. ok is false if there is no such container.
func (t *Trace) Usage(key string) (u Usage, ok bool) {
	task := t.tasks[key]
	if task == nil {
		return u, false
	}
	for i, c := range []*Curve{&u.CPU, &u.Memory, &u.Cache, &u.Tasks, &u.Layer, &u.Logs} {
		if s := task.series[i]; len(s) > 0 {
			*c = s.at
		}
	}
	return u, true
}

// at returns the amount of the last point that is not after age, or zero if there is none.
func (s series) at(age time.Duration) float64 {
	i := sort.Search(len(s), func(i int) bool { return s[i].at > age })
	if i == 0 {
		return 0
	}
	return s[i-1].amount
}
