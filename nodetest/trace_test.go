// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
)

// plain is a format with a header.
func plain() nodetest.TraceFormat {
	return nodetest.TraceFormat{
		Time: "t", TimeUnit: time.Second, Key: []string{"pod"}, CPU: nodetest.TraceColumn{Name: "cpu"}, Memory: nodetest.TraceColumn{Name: "mib", Unit: 1 << 20},
	}
}

func readTrace(t *testing.T, text string, f nodetest.TraceFormat) *nodetest.Trace {
	t.Helper()
	trace, err := nodetest.ReadTrace(strings.NewReader(text), f)
	require.NoError(t, err)
	return trace
}

func TestTraceBeginsWithTheFirstRecordOfItsContainer(t *testing.T) {
	trace := readTrace(t, "pod,t,mib,cpu\na,100,10,0.5\nb,200,7,1\na,130,30,\na,120,20,2\na,130,31,\n", plain())

	assert.Equal(t, []string{"a", "b"}, trace.Keys())
	a, ok := trace.Usage("a")
	require.True(t, ok)
	for age, want := range map[time.Duration][2]float64{
		0: {0.5, 10}, 19 * time.Second: {0.5, 10}, 20 * time.Second: {2, 20}, 30 * time.Second: {2, 31}, time.Hour: {2, 31},
	} {
		assert.Equal(t, want, [2]float64{a.CPU(age), a.Memory(age) / (1 << 20)}, age)
	}
	assert.Nil(t, a.Cache)
	_, ok = trace.Usage("c")
	assert.False(t, ok)
}

func TestPublicTracesAreRead(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		format nodetest.TraceFormat
		text   string
		key    string
	}{
		"Google 2011": {
			nodetest.Google2011(10, 100*gib),
			"600000000,900000000,3418309,0,4155527081,0.05,0.02,0.07,0.01,0.03,0.06,0.0002,0.0001,0.1,0.02,2.9,0.01,1,0,0.04\n" +
				"900000000,1200000000,3418309,0,4155527081,0.15,0.04,0.07,0.01,0.03,0.06,,,,,,,1,0,\n", "3418309/0",
		},
		"Google 2019": {
			nodetest.Google2019(10, 100*gib),
			`{"start_time":"600000000","end_time":"900000000","collection_id":"381039","instance_index":"7","machine_id":"92","average_usage":{"cpus":0.05,"memory":0.02},"page_cache_memory":0.01,"cpu_usage_distribution":[0,1]}` + "\n" +
				`{"start_time":900000000,"collection_id":381039,"instance_index":7,"average_usage":{"cpus":0.15,"memory":0.04},"page_cache_memory":0.01}`, "381039/7",
		},
		"Alibaba 2018": {
			nodetest.Alibaba2018(10, 100*gib), "c_1,m_2556,386640,5,2,,,,,,\nc_1,m_2556,386940,15,4,1.2,,3,0.1,0.2,101\n", "c_1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			trace := readTrace(t, c.text, c.format)
			u, ok := trace.Usage(c.key)
			require.True(t, ok, trace.Keys())
			assert.InDelta(t, 0.5, u.CPU(0), 1e-9)
			assert.InDelta(t, 1.5, u.CPU(5*time.Minute), 1e-9)
			assert.InDelta(t, 2*gib, u.Memory(0), 1)
			assert.InDelta(t, 4*gib, u.Memory(time.Hour), 1)
			if u.Cache != nil {
				assert.InDelta(t, gib, u.Cache(0), 1)
			}
		})
	}
}

func TestReadTraceNamesLineColumnAndValue(t *testing.T) {
	asJSON := plain()
	asJSON.JSON = true
	for name, c := range map[string]struct {
		text, want string
		format     nodetest.TraceFormat
	}{
		"word":        {"pod,t,mib,cpu\na,1,x,1\n", `read trace: line 2: column "mib": "x" is no number`, plain()},
		"negative":    {"pod,t,mib,cpu\na,1,1,-1\n", `line 2: column "cpu": "-1" is negative or too large`, plain()},
		"infinite":    {"pod,t,mib,cpu\na,1,1,Inf\n", `line 2: column "cpu": "Inf" is negative or too large`, plain()},
		"NaN":         {"pod,t,mib,cpu\na,1,1,NaN\n", `line 2: column "cpu": "NaN" is no number`, plain()},
		"no time":     {"pod,t,mib,cpu\na,,1,1\n", `line 2: column "t": is empty`, plain()},
		"late":        {"pod,t,mib,cpu\na,1e300,1,1\n", `line 2: column "t": "1e300" is negative or too large`, plain()},
		"no key":      {"pod,t,mib,cpu\n,1,1,1\n", `line 2: column "pod": is empty`, plain()},
		"no column":   {"pod,t,mib\n", `line 1: no column "cpu"`, plain()},
		"quotes":      {"pod,t,mib,cpu\n\"a,1,1,1\n", "line 2: parse error", plain()},
		"long line":   {"pod,t,mib,cpu\n" + strings.Repeat("a", 2<<20), "line 2: more than 1048576 bytes", plain()},
		"no JSON":     {"{}\n{", "line 1: column \"pod\": is empty", asJSON},
		"cut JSON":    {`{"pod":"a","t":1}` + "\n{", "line 2: unexpected EOF", asJSON},
		"JSON object": {`{"pod":"a","t":1,"cpu":[1]}`, `line 1: column "cpu": "[1]" is no number`, asJSON},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nodetest.ReadTrace(strings.NewReader(c.text), c.format)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestReadTraceNamesTheInvalidFieldOfTheFormat(t *testing.T) {
	for want, change := range map[string]func(f *nodetest.TraceFormat){
		"TraceFormat.Time: required":       func(f *nodetest.TraceFormat) { f.Time = "" },
		"TraceFormat.TimeUnit: 0s":         func(f *nodetest.TraceFormat) { f.TimeUnit = 0 },
		"TraceFormat.Key: []":              func(f *nodetest.TraceFormat) { f.Key = nil },
		"TraceFormat.CPU.Unit: -1":         func(f *nodetest.TraceFormat) { f.CPU.Unit = -1 },
		"TraceFormat.Columns":              func(f *nodetest.TraceFormat) { f.JSON, f.Columns = true, []string{"a"} },
		"CPU, Memory or another amount":    func(f *nodetest.TraceFormat) { f.CPU, f.Memory = nodetest.TraceColumn{}, nodetest.TraceColumn{} },
		"TraceFormat.Memory.Unit: +Inf is": func(f *nodetest.TraceFormat) { f.Memory.Unit = math.Inf(1) },
	} {
		f := plain()
		change(&f)
		_, err := nodetest.ReadTrace(strings.NewReader(""), f)
		assert.ErrorContains(t, err, want)
	}
}

// Whatever a file has: ReadTrace returns an error or curves that are never negative and do not depend on the order of lines.
func FuzzReadTrace(f *testing.F) {
	f.Add("pod,t,mib,cpu\na,100,10,0.5\nb,200,7,1\na,130,30,\n", false)
	f.Add(`{"pod":"a","t":"1","mib":3,"cpu":{"x":1}}`, true)
	f.Add("pod,t,mib,cpu\n\"a\"\"b\",1e3,0x1p4,1_0\n", false)
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		format := plain()
		format.JSON = isJSON
		trace, err := nodetest.ReadTrace(strings.NewReader(text), format)
		if err != nil {
			return
		}
		for _, key := range trace.Keys() {
			u, ok := trace.Usage(key)
			require.True(t, ok)
			for _, c := range []nodetest.Curve{u.CPU, u.Memory} {
				for _, age := range []time.Duration{0, time.Second, time.Hour, math.MaxInt64} {
					assert.False(t, c != nil && !(c(age) >= 0 && c(age) <= 1<<50))
				}
			}
		}
	})
}

// A trace of one container with a million records: the time of one evaluation grows with its logarithm.
func BenchmarkTrace(b *testing.B) {
	var text strings.Builder
	text.WriteString("pod,t,mib,cpu\n")
	for i := range 1_000_000 {
		fmt.Fprintf(&text, "a,%d,%d,0.%d\n", i, i%1000, i%10)
	}
	trace, err := nodetest.ReadTrace(strings.NewReader(text.String()), plain())
	require.NoError(b, err)
	u, _ := trace.Usage("a")
	random := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		u.Memory(time.Duration(random.IntN(1_000_000)) * time.Second)
	}
}
