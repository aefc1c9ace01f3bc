// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// logBuffer is a buffer that several goroutines can write to.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A part that the program does not run or connect is reported.
func TestMissingPartsReported(t *testing.T) {
	for name, forgotten := range map[string]string{
		"nothing":   "",
		"generator": "pleg.Generator.Run",
		"changes":   "Reconciler.Changed",
		"probes":    "probe.Set.Run",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logBuffer
				var hook logBuffer
				rt := critest.New(critest.Options{})
				set := probe.NewSet(probe.Options{})
				generator := pleg.New(rt, pleg.Options{})
				var observer lifecycle.Observer = generator
				if name == "changes" {
					observer = struct{ lifecycle.Observer }{generator} // it has no Notify method
				}
				r := newReconciler(t, rt, observer, lifecycle.Options{
					Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
					Probes: podprobe.NewPods(set, podprobe.Options{Execer: podprobe.CRI(rt)}),
					Hooks: lifecycle.Hooks{Error: func(pod cri.PodIdentity, err error, _ time.Duration) {
						require.Zero(t, pod)
						_, _ = hook.Write([]byte(err.Error() + "\n"))
					}},
				})
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				if name != "generator" {
					wg.Go(func() { _ = generator.Run(ctx) })
				}
				if name != "probes" {
					wg.Go(func() { _ = set.Run(ctx) })
				}
				wg.Go(func() { _ = r.Run(ctx) })
				pod := podtest.Pod("a")
				pod.Spec.Containers[0].ReadinessProbe = podtest.Probe("ready", 10) // its result does not depend on an observation of the runtime
				require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}}))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if forgotten == "" {
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					require.Empty(t, hook.String())
					require.Empty(t, log.String())
				} else {
					require.Equal(t, 1, strings.Count(hook.String(), "\n"))
					require.Contains(t, hook.String(), forgotten)
					require.Contains(t, log.String(), forgotten)
					time.Sleep(2*time.Minute + 10*time.Second)
					synctest.Wait()
					require.Equal(t, 3, strings.Count(hook.String(), "\n"), "the missing call is reported every minute")
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

// Drain returns an error if Run was not called or has returned.
func TestDrainReturnsErrorWithoutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{})
		require.EqualError(t, r.Drain(t.Context()), "drain: lifecycle.Reconciler.Run is not running: call it in a goroutine of its own")

		hung := faulty{&critest.Faults{Runtime: rt, Around: func(ctx context.Context, op, _ string, call func() error) error {
			if op == "StopContainer" {
				return critest.Hang(ctx)
			}
			return call()
		}}, rt, rt}
		n := startAgent(t, rt, hung, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		go func() { time.Sleep(time.Minute); n.stop() }()
		require.EqualError(t, n.reconciler.Drain(t.Context()), "drain: Reconciler.Run has returned before all pods were torn down")
		n.stop()
	})
}

// A second call of Run returns an error.
func TestSecondRunReturnsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		synctest.Wait()
		require.EqualError(t, n.reconciler.Run(t.Context()), "lifecycle.Reconciler: second call of Run")
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "StartContainer"))
	})
}

// New refuses relative paths and negative durations.
func TestValidateRefusesInvalidOptions(t *testing.T) {
	for want, change := range map[string]func(o *lifecycle.Options){
		`field Dirs.Pods: "pods" must be an absolute path`:          func(o *lifecycle.Options) { o.Dirs.Pods = "pods" },
		`field Spec.LogRoot: "logs" must be an absolute path`:       func(o *lifecycle.Options) { o.Spec.LogRoot = "logs" },
		`field Dirs.LogLinks: "./links" must be an absolute path`:   func(o *lifecycle.Options) { o.Dirs.LogLinks, o.Spec.LogRoot = "./links", "/logs" },
		`field Dirs.LogLinks: "/links" must be empty without`:       func(o *lifecycle.Options) { o.Dirs.LogLinks = "/links" },
		`field Spec.SeccompRoot: "." must be an absolute path`:      func(o *lifecycle.Options) { o.Spec.SeccompRoot = "." },
		"field Pacing.StartSlotTimeout: -1s must not be negative":   func(o *lifecycle.Options) { o.Pacing.StartSlotTimeout = -time.Second },
		"field Pacing.MaxRestartPeriod: -1s must not be negative":   func(o *lifecycle.Options) { o.Pacing.MaxRestartPeriod = -time.Second },
		"field Pacing.Resync: -1s must not be negative":             func(o *lifecycle.Options) { o.Pacing.Resync = -time.Second },
		"field Pacing.Parallel: -1 must be at least 0":              func(o *lifecycle.Options) { o.Pacing.Parallel = -1 },
		`field Sources[1]: "a" must be a name that no other source`: func(o *lifecycle.Options) { o.Sources = []string{"a", "a"} },
		`field Sources[0]: "" must be a name`:                       func(o *lifecycle.Options) { o.Sources = []string{""} },
		`field Spec.HostIPs[0]: "invalid IP" must be an IP`:         func(o *lifecycle.Options) { o.Spec.HostIPs = func() []netip.Addr { return make([]netip.Addr, 1) } },
	} {
		t.Run(want, func(t *testing.T) {
			var o lifecycle.Options
			change(&o)
			require.ErrorContains(t, o.Validate(), want)
			rt := critest.New(critest.Options{})
			_, err := lifecycle.New(rt, pleg.New(rt, pleg.Options{}), o)
			require.ErrorContains(t, err, want)
		})
	}
	require.NoError(t, lifecycle.Options{}.Validate())
}
