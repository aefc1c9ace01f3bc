// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package nodetest_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
)

// cost is the cost of a simulated cluster.
type cost struct {
	nodes  int
	events uint64        // of all nodes
	cpu    time.Duration // of the process
}

// The cost of an event is the same in small and in large clusters. With NODETEST_COST=FILE.svg, clusters of up to 1,000 nodes are simulated for
// ten minutes, as in BenchmarkNodes, and the file gets a plot.
func TestCostIsLinearInEvents(t *testing.T) {
	file := os.Getenv("NODETEST_COST")
	if file == "" {
		t.Skip("takes minutes: make node-cost, which sets NODETEST_COST")
	}
	simulateNodes(t, 10) // so that the first figure does not contain the growth of the heap
	var costs []cost
	for _, count := range []int{10, 30, 100, 300, 1000} {
		before := cpuTime(t)
		nodes := simulateNodes(t, count)
		c := cost{nodes: count, cpu: cpuTime(t) - before}
		for _, n := range nodes {
			c.events += nodetest.EventCount(n)
		}
		t.Logf("%4d nodes: %8d events, %v of CPU time, %v an event", c.nodes, c.events, c.cpu.Round(time.Millisecond), c.perEvent())
		costs = append(costs, c)
	}
	require.NoError(t, os.WriteFile(file, []byte(drawCosts(costs)), 0o644))
	first, last := costs[0], costs[len(costs)-1]
	require.InDelta(t, 1, float64(last.perEvent())/float64(first.perEvent()), 0.5, "cost of an event with %d and with %d nodes", last.nodes, first.nodes)
}

func (c cost) perEvent() time.Duration { return c.cpu / time.Duration(c.events) }

// cpuTime returns the CPU time that the process has used.
func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// drawCosts returns an SVG image: CPU time over events, both axes logarithmic, and the line of the average cost of an event.
func drawCosts(costs []cost) string {
	const width, height, margin = 640, 400, 60
	last := costs[len(costs)-1]
	lowX, highX := math.Floor(math.Log10(float64(costs[0].events))), math.Ceil(math.Log10(float64(last.events)))
	lowY, highY := math.Floor(math.Log10(costs[0].cpu.Seconds())), math.Ceil(math.Log10(last.cpu.Seconds()))
	x := func(events float64) float64 {
		return margin + (math.Log10(events)-lowX)/(highX-lowX)*(width-2*margin)
	}
	y := func(seconds float64) float64 {
		return height - margin - (math.Log10(seconds)-lowY)/(highY-lowY)*(height-2*margin)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="24" text-anchor="middle">CPU time of ten minutes with 30 pods a node</text>`+"\n", width/2)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">events</text><text x="12" y="%d">s</text>`+"\n", width/2, height-12, margin-12)
	for e := lowX; e <= highX; e++ {
		at := x(math.Pow(10, e))
		fmt.Fprintf(&b, `<path d="M%.0f %d V%d" stroke="#ddd"/><text x="%.0f" y="%d" text-anchor="middle">%.0f</text>`+"\n", at, margin, height-margin, at, height-margin+18, math.Pow(10, e))
	}
	for e := lowY; e <= highY; e++ {
		at := y(math.Pow(10, e))
		fmt.Fprintf(&b, `<path d="M%d %.0f H%d" stroke="#ddd"/><text x="%d" y="%.0f" text-anchor="end">%g</text>`+"\n", margin, at, width-margin, margin-6, at+4, math.Pow(10, e))
	}
	average := last.perEvent().Seconds()
	fmt.Fprintf(&b, `<path d="M%.1f %.1f L%.1f %.1f" stroke="#888" stroke-dasharray="4"/>`+"\n",
		x(float64(costs[0].events)), y(average*float64(costs[0].events)), x(float64(last.events)), y(last.cpu.Seconds()))
	for _, c := range costs {
		atX, atY := x(float64(c.events)), y(c.cpu.Seconds())
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="#06c"/><text x="%.1f" y="%.1f" text-anchor="end">%d nodes: %.3g s</text>`+"\n", atX, atY, atX-8, atY-4, c.nodes, c.cpu.Seconds())
	}
	return b.String() + "</svg>\n"
}
