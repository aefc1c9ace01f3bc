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

var crowded = flag.Bool("crowded", false, "measure what 10,000 probes cost, and look at their ports for two minutes")

// Sides of the comparison: who asks the crowd.
const (
	byKubelet = "kubelet"         // the prober manager
	byOurs    = "nodeagent"       // a set, with the connections of a pool
	byFresh   = "nodeagent-fresh" // a set that opens one for each probe, as the kubelet does
)

// watch says what a process is to do and for how long it is looked at.
type watch struct {
	Side   string
	Port   int // of the server
	Window time.Duration
}

// sight is what was seen of the process of a side.
type sight struct {
	CPU            time.Duration // user and system, in the window
	Asked, Opened  int64         // probes that the server answered and connections it accepted, in the window
	Failed         int64         // probes, since the start
	Failure        string        // of the first
	Heap, Resident float64       // bytes for each probe: objects and stacks after a collection, and resident memory
	Goroutines     int
	Waiting        int // ports in TIME_WAIT
	WaitingServer  int // those of the server
}

// perProbe is CPU.
func (s sight) perProbe() time.Duration { return s.CPU / time.Duration(max(s.Asked, 1)) }

func (s sight) String() string {
	return fmt.Sprintf("%6.1f µs CPU a probe, %5d B heap and %5d B resident a probe, %5d goroutines; in the window %d asked, "+
		"%d connections; TIME_WAIT %d here, %d at the server; %d failed %s",
		float64(s.perProbe())/1e3, int(s.Heap), int(s.Resident), s.Goroutines, s.Asked,
		s.Opened, s.Waiting, s.WaitingServer, s.Failed, s.Failure)
}

// Ten thousand probes of one server cost at most half of the CPU time that they cost the kubelet, and less than 2 KiB
// each. The sides take turns. A window has four periods: the first of four probes opens a connection.
func TestProbeCost(t *testing.T) {
	if !*crowded || testing.Short() {
		t.Skip("without -crowded, or with -short")
	}
	const turns = 2
	var cpu [2]time.Duration
	for range turns {
		for i, side := range []string{byKubelet, byOurs} {
			s := look(t, side, 40*time.Second)
			if cpu[i] += s.perProbe() / turns; side == byOurs && s.Heap >= 2048 {
				t.Errorf("a probe takes %.0f bytes, not less than 2048", s.Heap)
			}
		}
	}
	look(t, byFresh, 20*time.Second) // to be known
	ratio := float64(cpu[1]) / float64(cpu[0])
	t.Logf("%v of CPU for a probe, %v for one of the kubelet: %.2f", cpu[1], cpu[0], ratio)
	if ratio > 0.5 {
		t.Errorf("a probe takes %.2f of the CPU time that it takes the kubelet, not at most 0.5", ratio)
	}
}

// A thousand probes a second of one address, which has 28,000 ports, never run out of them: none fails, although the
// side without a pool opens more connections than that. With -crowded the kubelet is looked at too.
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
			s := look(t, side, window)
			if side != byKubelet && s.Waiting > 5000 {
				t.Errorf("%d ports wait for their time to pass", s.Waiting)
			}
		})
	}
}

// look runs a server and one side, each in a process of its own, and returns what was seen. Each probe has to be asked
// every ten seconds, and each of ours to succeed; a busy machine may shift some of them to another window.
func look(t *testing.T, side string, window time.Duration) (s sight) {
	t.Helper()
	w := watch{Side: side, Window: window}
	if err := json.NewDecoder(child(t, "TestCrowdServer", nil)).Decode(&w.Port); err != nil {
		t.Fatalf("read port: %v", err)
	}
	if err := json.NewDecoder(child(t, "TestCrowdProber", w)).Decode(&s); err != nil {
		t.Fatalf("read what %s did: %v", side, err)
	}
	t.Logf("%s: %v", side, s)
	if want := crowd * window.Seconds() / 10; math.Abs(float64(s.Asked)-want) > 0.1*want {
		t.Errorf("%s asked %d times, not %.0f", side, s.Asked, want)
	}
	if s.Failed > 0 && side != byKubelet {
		t.Errorf("%d probes of %s failed, the first with %q", s.Failed, side, s.Failure)
	}
	return s
}

// childEnv tells a process of the test binary what to do.
const childEnv = "NODEAGENT_CROWD"

// child runs one test of this binary in a process of its own until the test ends, and returns its output.
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
	if _, err = cmd.StdinPipe(); err != nil { // a child ends with this process
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the context of the test is done
	return bufio.NewReader(out)
}
