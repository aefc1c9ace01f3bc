// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"
	"time"
)

var crowded = flag.Bool("crowded", false, "measure the cost of 10,000 probes, and their ports for two minutes")

// Sides of the comparison.
const (
	byKubelet = "kubelet"         // the kubelet's prober manager
	byOurs    = "nodeagent"       // a Set with pooled connections
	byFresh   = "nodeagent-fresh" // a Set with a new connection for each probe, as in the kubelet
)

// watch is the argument of a child process: the measured side and the period of the measurement.
type watch struct {
	Side   string
	Port   int // of the server
	Window time.Duration
}

// measurement has the measurements of the process of one side.
type measurement struct {
	CPU            time.Duration // user and system, in the window
	Asked, Opened  int64         // probes answered and connections accepted by the server, in the window
	Failed         int64         // failed probes since the start
	Failure        string        // first failure
	Heap, Resident float64       // bytes per probe: objects and stacks after a collection, and resident memory
	Goroutines     int
	Waiting        int // ports in TIME_WAIT
	WaitingServer  int // ports in TIME_WAIT on the server side
}

// perProbe returns the CPU time per probe.
func (s measurement) perProbe() time.Duration { return s.CPU / time.Duration(max(s.Asked, 1)) }

func (s measurement) String() string {
	return fmt.Sprintf("%6.1f µs CPU a probe, %5d B heap and %5d B resident a probe, %5d goroutines; in the window %d asked, "+
		"%d connections; TIME_WAIT %d here, %d at the server; %d failed %s",
		float64(s.perProbe())/1e3, int(s.Heap), int(s.Resident), s.Goroutines, s.Asked,
		s.Opened, s.Waiting, s.WaitingServer, s.Failed, s.Failure)
}

// Ten thousand probes of one server need at most half of the kubelet's CPU time, and less than 2 KiB each. The sides
// alternate. A window has four probe periods, because one of four probes opens a connection.
func TestProbeCost(t *testing.T) {
	if !*crowded || testing.Short() {
		t.Skip("without -crowded, or with -short")
	}
	const turns = 2
	var cpu [2]time.Duration
	for range turns {
		for i, side := range []string{byKubelet, byOurs} {
			s := measureSide(t, side, 40*time.Second)
			if cpu[i] += s.perProbe() / turns; side == byOurs && s.Heap >= 2048 {
				t.Errorf("a probe needs %.0f bytes, want less than 2048", s.Heap)
			}
		}
	}
	measureSide(t, byFresh, 20*time.Second) // only logged
	ratio := float64(cpu[1]) / float64(cpu[0])
	t.Logf("CPU time per probe: %v, kubelet %v, ratio %.2f", cpu[1], cpu[0], ratio)
	if ratio > 0.5 {
		t.Errorf("a probe needs %.2f of the kubelet's CPU time, want at most 0.5", ratio)
	}
}

// A thousand probes per second of one address with 28,000 ports do not exhaust the ports, even without a connection pool: no
// probe fails. With -crowded the kubelet is measured, too.
func TestProbePorts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	window, sides := 20*time.Second, []string{byOurs, byFresh}
	if *crowded {
		window, sides = 2*time.Minute, append(sides, byKubelet)
	}
	for _, side := range sides {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			s := measureSide(t, side, window)
			if side != byKubelet && s.Waiting > 5000 {
				t.Errorf("%d ports in TIME_WAIT", s.Waiting)
			}
		})
	}
}

// measureSide runs a server and one side in separate processes, and returns the measurements. Each probe must run every ten
// seconds, and each of ours must succeed. 10 % of the probes may fall into another window on a busy machine.
func measureSide(t *testing.T, side string, window time.Duration) (s measurement) {
	t.Helper()
	w := watch{Side: side, Window: window}
	if err := json.NewDecoder(child(t, "TestCrowdServer", nil)).Decode(&w.Port); err != nil {
		t.Fatalf("read port: %v", err)
	}
	if err := json.NewDecoder(child(t, "TestCrowdProber", w)).Decode(&s); err != nil {
		t.Fatalf("read the measurements of %s: %v", side, err)
	}
	t.Logf("%s: %v", side, s)
	if want := crowd * window.Seconds() / 10; math.Abs(float64(s.Asked)-want) > 0.1*want {
		t.Errorf("%s probed %d times, want %.0f", side, s.Asked, want)
	}
	if s.Failed > 0 && side != byKubelet {
		t.Errorf("%d probes of %s failed, the first with %q", s.Failed, side, s.Failure)
	}
	return s
}

// childEnv is the environment variable with the argument of a child process.
const childEnv = "NODEAGENT_CROWD"

// child runs one test of this binary in a child process until the test ends, and returns its output.
func child(t *testing.T, name string, argument any) *bufio.Reader {
	t.Helper()
	text, err := json.Marshal(argument)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = cmd.StdinPipe(); err != nil { // the child exits when this process closes the pipe
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the context of the test, which kills the child, ends before
	return bufio.NewReader(out)
}
