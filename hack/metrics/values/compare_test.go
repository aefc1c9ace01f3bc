// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var start = time.UnixMilli(1_700_000_000_000)

// reads parses a page that is read the given time after the start.
func reads(t *testing.T, text string, after time.Duration) readings {
	t.Helper()
	all, err := parsePage(strings.NewReader(text), start.Add(after))
	require.NoError(t, err)
	return all
}

// A value of the kubelet agrees if our values around the time of its measurement include it, independent of the time at
// which the page was read.
func TestCompare(t *testing.T) {
	const page = "/metrics/cadvisor"
	for name, c := range map[string]struct {
		ours    map[time.Duration]string
		kubelet string
		want    string // empty: no difference
	}{
		"growing counter":                     {map[time.Duration]string{0: "x 10", time.Second: "x 20", 2 * time.Second: "x 30"}, "x 25 1700000001500", ""},
		"five percent":                        {map[time.Duration]string{0: "x 100"}, "x 104 1700000001000", ""},
		"six percent":                         {map[time.Duration]string{0: "x 100"}, "x 107 1700000001000", "x: 1 of 1 values are more than 5% apart, such as kubelet 107, ours 100 to 100 of"},
		"value that ours reached later":       {map[time.Duration]string{0: "x 10", 10 * time.Second: "x 20"}, "x 20 1700000000000", "x: 1 of 1"},
		"no measurement of ours at that time": {map[time.Duration]string{0: "x 10"}, "x 10 1700000009000", "nothing was compared"},
		"family that we do not have":          {map[time.Duration]string{0: "y 10"}, "x 10 1700000000000", "nothing was compared"},
		"excepted":                            {map[time.Duration]string{0: "container_last_seen 10"}, "container_last_seen 20 1700000000000", ""},
		"zero":                                {map[time.Duration]string{0: `x{a="1",b="2"} 0`}, `x{b="2",a="1"} 0 1700000000000`, ""},
		"one of three values differs":         {map[time.Duration]string{0: "x{a=\"1\"} 1\nx{a=\"2\"} 1\nx{a=\"3\"} 1"}, "x{a=\"1\"} 2 1700000000000\nx{a=\"2\"} 1 1700000000000\nx{a=\"3\"} 1 1700000000000", ""},
		"one of two values differs":           {map[time.Duration]string{0: "x{a=\"1\"} 1\nx{a=\"2\"} 1"}, "x{a=\"1\"} 2 1700000000000\nx{a=\"2\"} 1 1700000000000", "x: 1 of 2"},
		"zero and a small value":              {map[time.Duration]string{0: "x 0"}, "x 1 1700000000000", "x: 1 of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			all := comparison{except: exceptions()}
			for after, text := range c.ours {
				all.addOurs(page, reads(t, text+"\n", after))
			}
			all.compareKubelet(page, reads(t, c.kubelet+"\n", 0))
			all.compareKubelet(page, reads(t, c.kubelet+"\n", time.Minute)) // the second read of one measurement is not compared again
			text, err := all.formatReport()
			if c.want == "" {
				assert.NoError(t, err, text)
				return
			}
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestParseSummary(t *testing.T) {
	all, err := parseSummary(strings.NewReader(`{"node": {"nodeName": "n", "startTime": "2023-11-14T22:13:20Z", "cpu": {"time": "2023-11-14T22:13:21Z", "usageNanoCores": 7}},
		"pods": [{"podRef": {"name": "web", "uid": "u1"}, "containers": [{"name": "main", "logs": {"usedBytes": 5}}]}]}`), start)
	require.NoError(t, err)
	assert.Equal(t, readings{
		{"node.cpu.usageNanoCores", ""}:                {7, start.Add(time.Second).UTC()},
		{"pods.containers.logs.usedBytes", "/u1/main"}: {5, start},
	}, all)
}

func TestOnly(t *testing.T) {
	all := reads(t, "x{id=\"/\"} 1\nx{id=\"/other/pod\"} 2\nx{id=\"/mine/kubepods\"} 3\ny 4\n", 0)
	all.keepBelow("/mine")
	assert.Len(t, all, 3)
	assert.NotContains(t, all, series{"x", "id=/other/pod"})
}
