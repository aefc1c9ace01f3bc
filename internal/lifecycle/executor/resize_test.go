// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

const mib = 1 << 20

// sizedPod returns the pod "a" whose container has these resources, as in "cpu=REQUEST/LIMIT memory=REQUEST/LIMIT".
func sizedPod(generation int64, words string) *corev1.Pod {
	pod := podtest.Pod("a")
	pod.Generation = generation
	pod.Spec.Containers[0].Resources = podtest.ParseRequirements(strings.Fields(words))
	return pod
}

// decide calls Resizer.Decide and returns the resulting actions.
func (s *scene) decide() plan.Actions {
	observed := s.observed()
	s.x.Resizer.Decide(s.pod, observed, false)
	d := s.x.Resizer.CurrentDecision(s.pod, observed, false)
	return plan.Actions{
		SandboxID: "uid-a-0", Resize: d.Containers, ResizePod: len(d.Containers) == 0 && s.x.Resizer.MayHaveStaleLimits(observed),
	}
}

// requireResources fails unless the container main has these CPU shares, CPU quota and memory limit in the runtime.
func (s *scene) requireResources(shares, quota, memory int64) {
	s.t.Helper()
	c, ok := s.rt.Container("a/main")
	require.True(s.t, ok)
	require.Equal(s.t, [3]int64{shares, quota, memory}, [3]int64{c.Resources.CPUShares, c.Resources.CPUQuota, c.Resources.MemoryLimit})
}

// A container gets the resources of the spec. The record has the sent size, so that a restarted agent does not send it again.
func TestResize(t *testing.T) {
	for _, kind := range []string{"by the runtime", "with the cgroup of the pod"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := []string{"0s UpdatePodSandboxResources uid-a-0", "0s UpdateContainerResources uid-a-main-0"}
				var s *scene
				if kind == "by the runtime" {
					s = newScene(t, sizedPod(1, "cpu=250m/500m memory=32Mi/64Mi"), setting{})
				} else {
					s, _ = withCgroups(t, sizedPod(1, "cpu=250m/500m memory=32Mi/64Mi"), setting{})
					want = []string{"0s Resize", "0s UpdateContainerResources uid-a-main-0"}
				}
				root := t.TempDir()
				s.node.PodRoot = root
				s.createExecutor()
				s.startContainers("main")
				s.requireResources(256, 50000, 64*mib)
				a := s.decide()
				require.True(t, a.IsIdle(), "the container has the requested resources")

				s.pod = sizedPod(2, "cpu=500m/1 memory=64Mi/128Mi")
				a = s.decide()
				require.Len(t, a.Resize, 1)
				require.NoError(t, s.execute(t.Context(), a))
				s.requireCalls(want...)
				s.requireResources(512, 100000, 128*mib)
				a = s.decide()
				require.True(t, a.IsIdle())

				s.createExecutor()
				s.x.Resizer.Restore(s.record.Get())
				a = s.decide()
				require.True(t, a.IsIdle(), "a restarted agent sends no further resize")
			})
		})
	}
}

// A removed limit is sent as unlimited: zero would keep the old limit.
func TestResizeRemovesLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, sizedPod(1, "cpu=250m/500m memory=32Mi/64Mi"), setting{})
		s.startContainers("main")
		s.pod = sizedPod(2, "cpu=250m/ memory=32Mi/")
		require.NoError(t, s.execute(t.Context(), s.decide()))
		s.requireResources(256, -1, -1)
	})
}

// As in the kubelet, a resize does not read the resolv.conf of the host, which may be missing for a moment.
func TestResizeWithoutResolvConf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var missing error
		s := newScene(t, sizedPod(1, "cpu=250m/500m"), setting{node: func(n *executor.Node) {
			n.Spec.ResolvConf = func() (*cri.DNSConfig, error) { return &cri.DNSConfig{}, missing }
		}})
		s.startContainers("main")
		missing = fs.ErrNotExist
		s.pod = sizedPod(2, "cpu=500m/1")
		require.NoError(t, s.execute(t.Context(), s.decide()))
		require.True(t, s.called("UpdatePodSandboxResources uid-a-0"))
		s.requireResources(512, 100000, 0)
	})
}

// A memory limit is not lowered below the usage, or if the usage is unknown.
func TestResizeKeepsMemoryLimitAboveUsage(t *testing.T) {
	usage := func(n uint64) func(cri.Container) cri.ContainerStats {
		return func(cri.Container) cri.ContainerStats {
			return cri.ContainerStats{Memory: &cri.MemoryUsage{UsageBytes: &n}}
		}
	}
	tests := map[string]struct {
		usage    func(cri.Container) cri.ContainerStats
		statsErr error
		from, to string
		want     string // expected error
	}{
		"usage below the new limit": {usage: usage(47 * mib), from: "/64Mi", to: "/48Mi"},
		"usage equal to the new limit": {
			usage: usage(48 * mib), from: "/64Mi", to: "/48Mi",
			want: `cannot decrease memory limits: attempting to set container "main" memory limit (50331648) below current usage (50331648)`,
		},
		"first limit": {
			usage: usage(100 * mib), from: "32Mi/", to: "32Mi/64Mi",
			want: `cannot decrease memory limits: attempting to set container "main" memory limit (67108864) below current usage (104857600)`,
		},
		"first limit is unlimited":             {from: "32Mi/", to: "32Mi/9223372036854775807"},
		"limit raised":                         {from: "/64Mi", to: "/128Mi"},
		"limit removed":                        {from: "32Mi/64Mi", to: "32Mi/"},
		"usage missing":                        {from: "/64Mi", to: "/48Mi", want: `cannot decrease memory limits: missing container "main" memory usage`},
		"runtime reports no memory usage":      {from: "/64Mi", to: "/48Mi", usage: func(cri.Container) cri.ContainerStats { return cri.ContainerStats{} }, want: `cannot decrease memory limits: missing container "main" memory usage`},
		"runtime lists no stats":               {from: "/64Mi", to: "/48Mi", statsErr: errors.New("out of order"), want: "out of order"},
		"limit raised, runtime lists no stats": {from: "/64Mi", to: "/128Mi", statsErr: errors.New("out of order")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, sizedPod(1, "memory="+tt.from), setting{usage: tt.usage})
				s.startContainers("main")
				s.setFault("ListContainerStats", tt.statsErr)
				s.pod = sizedPod(2, "memory="+tt.to)
				err := s.execute(t.Context(), s.decide())
				if tt.want == "" {
					require.NoError(t, err)
					require.True(t, s.called("UpdateContainerResources uid-a-main-0"))
					return
				}
				require.ErrorContains(t, err, tt.want)
				require.False(t, s.called("UpdateContainerResources uid-a-main-0"))
			})
		})
	}
}

// UpdateSandbox is called for runtimes that size virtual machines by it, and ignored if unsupported.
func TestResizeUpdatesSandboxIfSupported(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"call unsupported": {&cri.Error{Op: "UpdatePodSandboxResources", Err: errors.ErrUnsupported}, true},
		"call unsupported according to the error text": {errors.New("rpc error: code = Unknown desc = not implemented"), true},
		"call fails": {errors.New("out of order"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, sizedPod(1, "cpu=250m/500m"), setting{})
				s.startContainers("main")
				s.setFault("UpdatePodSandboxResources", tt.err)
				s.pod = sizedPod(2, "cpu=500m/1")
				require.Equal(t, tt.want, s.execute(t.Context(), s.decide()) == nil)
				require.Equal(t, tt.want, s.called("UpdateContainerResources uid-a-main-0"))
			})
		})
	}
}

// A resize error stays in the decision until the resize succeeds or is no longer requested.
func TestResizeErrorInDecisionUntilResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, sizedPod(1, "cpu=250m/500m"), setting{})
		s.startContainers("main")
		decision := func() resize.Decision {
			s.decide()
			return s.x.Resizer.CurrentDecision(s.pod, s.observed(), false)
		}
		s.pod = sizedPod(2, "cpu=500m/1")
		s.setFault("UpdateContainerResources", errors.New("out of order"))
		require.Error(t, s.execute(t.Context(), s.decide()))
		d := decision()
		require.Equal(t, "resize container main: out of order", d.Error)
		require.EqualValues(t, 2, d.Generation)
		require.Len(t, d.Containers, 1, "the resize is retried")

		s.pod = sizedPod(3, "cpu=500m/1")
		s.pod.Labels = map[string]string{"other": "change"}
		d = decision()
		require.Equal(t, "resize container main: out of order", d.Error)
		require.EqualValues(t, 2, d.Generation, "the generation of the failed resize")

		s.pod = sizedPod(4, "cpu=250m/500m")
		d = decision()
		require.Empty(t, d.Error)
		require.Empty(t, d.Containers)
		require.EqualValues(t, 4, d.Generation)
	})
}

// If a cgroup driver resizes a pod without calling the runtime, the resize fails. Otherwise it would be repeated forever.
func TestResizeFailsIfSizeIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, groups := withCgroups(t, sizedPod(1, "cpu=250m/500m"), setting{})
		groups.resize = func(context.Context, []cgroups.ContainerResize, cgroups.Resizer) error { return nil }
		s.startContainers("main")
		s.pod = sizedPod(2, "cpu=500m/1")
		require.EqualError(t, s.execute(t.Context(), s.decide()), "resize container main: the runtime did not get cpu=500/1000 memory=0/0")
	})
}

// A resize is deferred on a full node, and infeasible if the runtime has no cri.Updater.
func TestResizeDeferredOrInfeasible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full error
		s := newScene(t, sizedPod(1, "cpu=250m/500m"), setting{node: func(n *executor.Node) {
			n.AdmitResize = func(*corev1.Pod) error { return full }
		}})
		s.startContainers("main")
		full = errors.New("the node is full")
		s.pod = sizedPod(2, "cpu=500m/1")
		a := s.decide()
		require.True(t, a.IsIdle())
		d := s.x.Resizer.CurrentDecision(s.pod, s.observed(), false)
		require.Equal(t, "Deferred: the node is full", d.Reason+": "+d.Message)
		for why, want := range map[podstatus.Rejection]string{
			{Reason: corev1.PodReasonInfeasible, Message: "the node is small"}: "Infeasible: the node is small",
			{Reason: "OutOfcpu", Message: "the node is full"}:                  "Deferred: the node is full",
		} {
			full = fmt.Errorf("admit: %w", &why)
			a = s.decide()
			require.True(t, a.IsIdle())
			d = s.x.Resizer.CurrentDecision(s.pod, s.observed(), false)
			require.Equal(t, want, d.Reason+": "+d.Message)
		}
		full = nil
		a = s.decide()
		require.Len(t, a.Resize, 1)

		s.node.Runtime = struct{ cri.Runtime }{s.rt} // without cri.Updater
		s.createExecutor()
		a = s.decide()
		require.True(t, a.IsIdle())
		d = s.x.Resizer.CurrentDecision(s.pod, s.observed(), false)
		require.Equal(t, corev1.PodReasonInfeasible, d.Reason)
	})
}

// After a runtime has refused an update as unsupported, a resize is infeasible, and the runtime gets no second update.
func TestResizeInfeasibleAfterUnsupportedUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updates, refusal := 0, error(nil)
		s := newScene(t, sizedPod(1, "cpu=250m/500m"), setting{})
		s.node.Runtime = &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: s.rt}, Around: func(ctx context.Context, op, _ string, call func(context.Context) error) error {
			if op == "UpdateContainerResources" {
				updates++
				if refusal != nil {
					return refusal
				}
			}
			return call(ctx)
		}}
		s.createExecutor()
		s.startContainers("main")
		s.pod = sizedPod(2, "cpu=500m/1")
		refusal = errors.New("the cgroup is busy")
		require.ErrorIs(t, s.execute(t.Context(), s.decide()), refusal)
		require.Len(t, s.decide().Resize, 1, "another error is retried")
		refusal = fmt.Errorf("no cgroups: %w", errors.ErrUnsupported)
		require.ErrorIs(t, s.execute(t.Context(), s.decide()), errors.ErrUnsupported)
		a := s.decide()
		require.True(t, a.IsIdle())
		d := s.x.Resizer.CurrentDecision(s.pod, s.observed(), false)
		require.Equal(t, corev1.PodReasonInfeasible, d.Reason)
		require.Equal(t, 2, updates)
	})
}

// The pod-level limits are sent without the pod overhead, which is for the runtime.
func TestResizeSandboxSubtractsOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := sizedPod(1, "cpu=250m/500m memory=32Mi/64Mi")
		pod.Spec.Overhead = podtest.ParseRequirements([]string{"cpu=250m/", "memory=16Mi/"}).Requests
		s, groups := withCgroups(t, pod, setting{})
		var overhead, resources *cri.Resources
		s.node.Runtime = sandboxUpdates{recordingRuntime{&critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: s.rt}, Around: s.interceptCall}, s}, func(o, r *cri.Resources) {
			overhead, resources = o, r
		}}
		groups.resize = func(ctx context.Context, _ []cgroups.ContainerResize, runtime cgroups.Resizer) error {
			return runtime.ResizeSandbox(ctx, cgroups.Resources{
				CPUShares: cgroups.CPUShares(750), CPUQuota: 75000, CPUPeriod: 100000, MemoryMax: new(int64(80 * mib)),
			})
		}
		s.createExecutor()
		s.startContainers("main")
		require.NoError(t, s.execute(t.Context(), plan.Actions{SandboxID: "uid-a-0", ResizePod: true}))
		require.EqualValues(t, cgroups.CPUShares(250), overhead.CPUShares)
		require.Equal(t, cri.Resources{
			CPUShares: int64(cgroups.CPUShares(500)), CPUQuota: 75000 - overhead.CPUQuota, CPUPeriod: 100000,
			MemoryLimit: 80*mib - overhead.MemoryLimit,
		}, *resources)
	})
}

// sandboxUpdates is a runtime that records the calls of UpdateSandbox.
type sandboxUpdates struct {
	recordingRuntime
	reported func(overhead, resources *cri.Resources)
}

// UpdateSandbox records the call.
func (u sandboxUpdates) UpdateSandbox(ctx context.Context, id string, overhead, resources *cri.Resources) error {
	u.reported(overhead, resources)
	return u.recordingRuntime.UpdateSandbox(ctx, id, overhead, resources)
}
