// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/probe"
)

func ExampleSet() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	set := probe.NewSet(probe.Options{
		Rand: func() float64 { return 0 }, // the first probe starts at once
		Hooks: probe.Hooks{ValueChanged: func(k probe.Key, v probe.Value) {
			fmt.Printf("%s: %s\n", k, v.Outcome)
			if v.Outcome == probe.Success {
				cancel()
			}
		}},
	})
	asked := 0
	err := set.Sync([]probe.Target{{
		Key:         probe.Key{PodUID: "1234", Container: "web", Kind: probe.Readiness},
		ContainerID: "containerd://abcd",
		StartedAt:   time.Now(),
		Running:     true,
		Started:     true,
		Spec:        probe.Spec{Period: 20 * time.Millisecond},
		Prober: probe.Func(func(context.Context) (probe.Result, error) {
			if asked++; asked < 3 {
				return probe.Result{Outcome: probe.Failure, Output: "starting up"}, nil
			}
			return probe.Result{Outcome: probe.Success}, nil
		}),
	}})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(set.Run(ctx))
	// Output:
	// Readiness probe of container "web" of pod "1234": failure
	// Readiness probe of container "web" of pod "1234": success
	// <nil>
}

// Three failures in a row make a liveness probe fail. The probe then ends, because the container must be restarted.
func ExampleState() {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	state := probe.NewState(start).UpdateTarget(probe.Target{
		Key:         probe.Key{PodUID: "1234", Container: "web", Kind: probe.Liveness},
		ContainerID: "containerd://abcd",
		StartedAt:   start,
		Running:     true,
		Started:     true,
		Spec:        probe.Spec{Period: 10 * time.Second},
	}, probe.PreviousRun{AgentStart: start}, start)
	for due := state.NextProbe(); !due.IsZero(); due = state.NextProbe() {
		state = state.StartProbe(due).AddResult(probe.Failure)
		value, _ := state.Value()
		fmt.Println(due.Format(time.TimeOnly), value.Outcome)
	}
	// Output:
	// 12:00:00 success
	// 12:00:10 success
	// 12:00:20 failure
}

// The targets of one pod. Its readiness is probed at once after an event of its runtime. The results become a metric.
func ExampleSet_SyncPod() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	set := probe.NewSet(probe.Options{
		Rand: func() float64 { return 0 }, // the first probe starts at once
		Hooks: probe.Hooks{ProbeFinished: func(_ probe.Key, r probe.Result, err error, _ time.Duration) {
			switch {
			case errors.Is(err, probe.ErrHung):
				fmt.Println("hung")
			case err != nil:
				fmt.Println("not probed:", err)
			default:
				fmt.Println(r.Outcome, r.Output)
			}
			cancel()
		}},
	})
	key := probe.Key{PodUID: "1234", Container: "web", Kind: probe.Readiness}
	err := set.SyncPod("1234", []probe.Target{{
		Key: key, ContainerID: "containerd://abcd", StartedAt: time.Now(), Running: true, Started: true,
		Spec:   probe.Spec{Period: time.Minute},
		Prober: probe.Func(sensor),
	}})
	fmt.Println(err, set.Healthy() != nil) // for healthz: there are targets, but Run is not running
	set.Trigger(key)
	fmt.Println(set.Run(ctx), set.Status().Hung)
	// Output:
	// <nil> true
	// success 21 degrees
	// <nil> 0
}

// sensor is a prober whose call cannot be cancelled: it returns when its context ends, and the read continues.
func sensor(ctx context.Context) (probe.Result, error) {
	call, ended := probe.DetachContext(ctx)
	output := make(chan string, 1)
	go func() {
		defer ended()
		output <- readSensor(call)
	}()
	select {
	case text := <-output:
		return probe.NewResult(probe.Success, text), nil // keeps MaxOutput bytes
	case <-ctx.Done():
		return probe.NewResult(probe.Failure, "sensor timed out"), nil
	}
}

// readSensor reads at most as many bytes of the sensor as a result keeps.
func readSensor(context.Context) string {
	text, _ := io.ReadAll(io.LimitReader(strings.NewReader("21 degrees"), probe.MaxOutput))
	return string(text)
}
