// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/nodetest"
)

// newRun plays a script under a policy with samples at an interval.
func newRun(t *testing.T, script, policyText string, interval time.Duration) *outcome {
	t.Helper()
	policies, err := parsePolicies(policyText)
	require.NoError(t, err)
	r, err := runScenario(t.Context(), script, *policies[0], interval, func(*nodetest.Sample) {})
	require.NoError(t, err)
	return r
}

func TestShippedScenariosShowADifferenceBetweenTheirPolicies(t *testing.T) {
	for _, name := range shippedScenarios() {
		s, err := readScenario(name, "")
		require.NoError(t, err)
		assert.NotEmpty(t, s.Title)
		assert.NotEmpty(t, s.Description)
		if s.Sweep != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			policies, err := parsePolicies(s.Policies)
			require.NoError(t, err)
			require.Len(t, policies, 2)
			script, total, err := s.expand(nil)
			require.NoError(t, err)
			var lost [2]string
			for i, p := range policies {
				r, err := runScenario(t.Context(), script, *p, sampleInterval(total), func(*nodetest.Sample) {})
				require.NoError(t, err)
				assert.InDelta(t, total.Seconds(), r.end().Seconds(), 1)
				for _, e := range r.log {
					if isLoss(&e) {
						lost[i] += e.String() + "\n"
					}
				}
			}
			assert.NotEqual(t, lost[0], lost[1])
			assert.NotEmpty(t, lost[0]+lost[1])
		})
	}
}

func TestRelativeExcessEvictsTheLargestMultipleOfARequestFirst(t *testing.T) {
	pods := []eviction.Candidate{
		{UID: "large", Memory: 3 << 30, MemoryRequest: 2 << 30},
		{UID: "small", Memory: 300 << 20, MemoryRequest: 64 << 20},
		{UID: "best-effort", Memory: 100 << 20},
		{UID: "important", Memory: 8 << 30, Priority: 5},
	}
	var order []string
	for _, p := range relativeExcess(0).Rank(eviction.MemoryAvailable, pods) {
		order = append(order, p.UID)
	}
	assert.Equal(t, []string{"small", "best-effort", "large", "important"}, order)
}

func TestMemoryHighIsThatOfTheKubelet(t *testing.T) {
	const script = `
machine memory=4Gi
pod limited memory=256Mi limits.memory=1Gi uses memory=10Mi
pod unlimited memory=256Mi uses memory=10Mi
pod guaranteed cpu=1 memory=1Gi limits.cpu=1 limits.memory=1Gi uses memory=10Mi
after 10s
`
	high := map[string]int64{}
	for _, p := range newRun(t, script, "memory.high=0.5+memory.available<1Gi", time.Second).samples[9].Pods {
		high[p.Name] = p.MemoryHigh
	}
	assert.Equal(t, map[string]int64{
		"default/limited":    (256 + (1024-256)/2) << 20,
		"default/unlimited":  (256 + (3072-256)/2) << 20, // towards the allocatable memory
		"default/guaranteed": 0,                          // its request is its limit
	}, high)
	for _, s := range newRun(t, script, "kubelet", time.Second).samples {
		for _, p := range s.Pods {
			assert.Zero(t, p.MemoryHigh, p.Name)
		}
	}
}

func TestTracksHaveRatesAndSums(t *testing.T) {
	const script = `
machine cpus=4 memory=4Gi
pod web cpu=500m memory=100Mi limits.cpu=500m limits.memory=200Mi uses cpu=1 memory=steps(50Mi@0s,400Mi@60s)
pod one cpu=100m uses cpu=0.25 memory=64Mi
pod two cpu=100m uses cpu=0.5 memory=32Mi cache=16Mi logs=8Mi
after 2m
`
	r := newRun(t, script, "kubelet", 5*time.Second)
	tr := tracksOf(r)

	require.Len(t, r.samples, 24)
	require.Len(t, tr.Pods, 3)
	require.Equal(t, []string{"one", "two", "web"}, []string{tr.Pods[0].Name, tr.Pods[1].Name, tr.Pods[2].Name})
	require.Len(t, tr.Classes, 1)
	require.Equal(t, "Burstable", tr.Classes[0].Name)
	web, burstable := tr.Pods[2], tr.Classes[0]
	assert.InDelta(t, 0.5, web.CPU[5], 0.01)
	assert.InDelta(t, 0.5, web.Throttled[5], 0.01)
	assert.InDelta(t, 50, web.Memory[5], 0.1)
	assert.InDelta(t, 0.5, web.CPULimit, 0)
	assert.InDelta(t, 200, web.MemoryLimit, 0)
	assert.InDelta(t, 1.25, burstable.CPU[5], 0.02)
	assert.InDelta(t, 50+64+32, burstable.Memory[5], 0.1)
	assert.InDelta(t, 16, burstable.Cache[5], 0.1)
	assert.InDelta(t, 8, burstable.Disk[5], 0.1)
	assert.InDelta(t, 1.25, tr.Node.CPU[5], 0.02)
	for i := 1; i < len(tr.Seconds); i++ {
		assert.GreaterOrEqual(t, web.Throttled[i], 0.0, "a restart resets the counter, which is no negative rate")
		assert.LessOrEqual(t, web.Throttled[i], 1.0)
	}

	rows := podRows(r, tr)
	kills := len(r.log.OOMKilled())
	require.Positive(t, kills)
	assert.Equal(t, kills, rows[2].OOMKills)
	assert.InDelta(t, float64(kills), web.Lost[23], 0)
	assert.InDelta(t, 200, rows[2].MemoryMax, 151, "the kill at 200 MiB is between two samples")
	sum := totalOf(r, tr, rows)
	assert.Equal(t, total{
		Policy: "kubelet", OOMKills: kills, Throttled: rows[2].Throttled, NotReady: rows[2].NotReady, MemoryMean: sum.MemoryMean, CPUMean: sum.CPUMean,
		LowestAvailable: sum.LowestAvailable, Threshold: 100,
	}, sum)
	assert.InDelta(t, 4096-50-96, sum.LowestAvailable, 1)
}

func TestTrackOfAnEvictedPodEnds(t *testing.T) {
	r := newRun(t, "machine memory=1Gi\npod leak uses memory=ramp(0,2Gi,1m)\nafter 2m", "memory.available<512Mi", time.Second)
	tr := tracksOf(r)
	row := podRows(r, tr)[0]

	assert.InDelta(t, 15, row.EvictedAt, 2)
	assert.Contains(t, row.Why, "low on resource: memory")
	assert.InDelta(t, 105, row.NotReady, 2)
	leak := tr.Pods[0]
	assert.False(t, math.IsNaN(leak.Memory[10]))
	assert.True(t, math.IsNaN(leak.Memory[20]))
	assert.InDelta(t, 1, leak.Lost[20], 0)
	spans := spansOf(r.log, "default/leak", r.end())
	var states []string
	for _, s := range spans {
		states = append(states, s.State)
	}
	assert.Equal(t, []string{"pending", "ready", "notReady", "ended"}, states)
	assert.InDelta(t, 120, spans[len(spans)-1].To, 0.1)
}

func TestRowOfARejectedPodSaysWhy(t *testing.T) {
	r := newRun(t, "machine memory=1Gi\npod large memory=2Gi\nafter 10s", "kubelet", time.Second)
	row := podRows(r, tracksOf(r))[0]
	assert.Contains(t, row.Why, "Node didn't have enough resource: memory")
	assert.Negative(t, row.EvictedAt)
}

func TestSeriesAreJSONWithNullForNoValue(t *testing.T) {
	text, err := json.Marshal(series{1, math.NaN(), 1234567, 0.12345678, math.Inf(1)})
	require.NoError(t, err)
	assert.JSONEq(t, "[1,null,1.2346e6,0.12346,null]", string(text))
}

func TestEventsAreEqualInAllFormats(t *testing.T) {
	r := newRun(t, "machine memory=1Gi\npod leak uses memory=ramp(0,2Gi,1m)\nafter 2m", "kubelet", time.Second)
	events := eventsOf([]*outcome{r})
	require.Len(t, events, len(r.log))
	var lines, table bytes.Buffer
	require.NoError(t, writeJSONLines(&lines, events))
	require.NoError(t, writeEventsCSV(&table, events))

	var got []event
	for d := json.NewDecoder(&lines); d.More(); {
		var e event
		require.NoError(t, d.Decode(&e))
		got = append(got, e)
	}
	assert.Equal(t, events, got)
	records, err := csv.NewReader(&table).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, len(events)+1)
	for i, e := range events {
		assert.Equal(t, []string{e.Policy, formatNumber(e.Seconds), e.Kind, e.Pod, e.Container, e.Reason, e.Message}, records[i+1])
	}
}

func TestSamplesCSVHasALineForNodeAndPods(t *testing.T) {
	r := newRun(t, "machine memory=2Gi cpus=2\npod web-{1..2} cpu=250m limits.memory=512Mi uses cpu=0.5 memory=100Mi\nafter 10s", "kubelet", 5*time.Second)
	var b bytes.Buffer
	require.NoError(t, writeSamplesCSV(&b, []*outcome{r}))
	records, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1+2*3)
	column := map[string]int{}
	for i, name := range records[0] {
		column[name] = i
	}
	last := records[6]
	assert.Equal(t, "default/web-2", last[column["pod"]])
	assert.Equal(t, "Burstable", last[column["class"]])
	assert.Equal(t, "Running", last[column["phase"]])
	assert.Equal(t, strconv.Itoa(100<<20), last[column["anon_bytes"]])
	assert.Equal(t, strconv.Itoa(512<<20), last[column["memory_limit_bytes"]])
	assert.Equal(t, "0.25", last[column["cpu_request"]])
	cpu, err := strconv.ParseFloat(last[column["cpu_seconds"]], 64)
	require.NoError(t, err)
	assert.InDelta(t, 4.8, cpu, 0.1)
	assert.Equal(t, strconv.Itoa(2<<30), records[4][column["memory_limit_bytes"]], "the limit of the node is its memory")
}

func TestSweepIsRepeatableAndCoversItsRange(t *testing.T) {
	s, err := readScenario("overcommit", "")
	require.NoError(t, err)
	policies, err := parsePolicies(s.Policies)
	require.NoError(t, err)
	sw, err := parseSweep("pods=50..60")
	require.NoError(t, err)
	play := func() []sweepRun {
		var out strings.Builder
		runs, err := runSweep(t.Context(), s, sw, policies, 3, &reporter{w: &out})
		require.NoError(t, err)
		assert.Contains(t, out.String(), "qoslab: run 1 of 6")
		return runs
	}
	runs := play()

	assert.Equal(t, runs, play())
	require.Len(t, runs, 6)
	for i, r := range runs {
		assert.InDelta(t, 50+5*float64(i/2), r.Value, 0)
		assert.Equal(t, policies[i%2].name, r.Policy)
		assert.Positive(t, r.Utilisation)
		assert.Equal(t, r.Evictions+r.OOMKills, r.Lost)
	}
	assert.Greater(t, runs[4].Utilisation, runs[5].Utilisation, "the larger threshold leaves more memory unused")
	assert.Greater(t, runs[5].Evictions, runs[1].Evictions, "more pods, more evictions")
	rows := valueRows(policies, runs)
	require.Len(t, rows, 6)
	assert.InDelta(t, runs[2].Utilisation, rows[1].Utilisation, 1e-9)
	var b bytes.Buffer
	require.NoError(t, writeRunsCSV(&b, sw, runs))
	records, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, "pods", records[0][2])
	assert.Equal(t, []string{runs[5].Policy, "3", "60"}, records[6][:3])
}

func TestValuesOfASweepCoverItsRange(t *testing.T) {
	for text, want := range map[string][]float64{
		"pods=20..70":      {20, 33, 45, 58, 70},
		"factor=0.5..1":    {0.5, 0.625, 0.75, 0.875, 1},
		"free=64Mi..128Mi": {64 << 20, 80 << 20, 96 << 20, 112 << 20, 128 << 20},
		"pods=3..3":        {3, 3, 3, 3, 3},
	} {
		sw, err := parseSweep(text)
		require.NoError(t, err)
		for i, v := range want {
			assert.InDelta(t, v, sw.value(i, 5), 1e-9, "%s: value %d", text, i)
		}
	}
	_, err := parseSweep("pods=7..3")
	assert.EqualError(t, err, "sweep pods: 7 is more than 3")
}

func TestValueRowsAreMeans(t *testing.T) {
	p := []*policy{{name: "a"}, {name: "b"}}
	rows := valueRows(p, []sweepRun{{Policy: "a", Value: 1, Evictions: 2}, {Policy: "b", Value: 1}, {Policy: "a", Value: 1, Evictions: 5}, {Policy: "a", Value: 2, Evictions: 1}})
	require.Len(t, rows, 3)
	assert.InDelta(t, 3.5, rows[0].Evictions, 1e-9)
	assert.Equal(t, 2, rows[0].Runs)
	assert.Equal(t, []any{"a", 2.0, "b", 1.0}, []any{rows[1].Policy, rows[1].Value, rows[2].Policy, rows[2].Value})
}

func TestTimesAndAmountsAreShownWithUnits(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0 s", 12.34: "12.3 s", 60: "1 min", 61: "1:01 min", 630: "10:30 min", 3600: "1 h", 3661: "1:01:01 h", 3630: "1:00:30 h"} {
		assert.Equal(t, want, showSeconds(seconds))
	}
	assert.Equal(t, "512 MiB", showMiB(512))
	assert.Equal(t, "1.5 GiB", showMiB(1536))
	assert.Equal(t, "0.33", showAmount(1.0/3))
}
