// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Tests of Options.Devices: devices are reserved before anything of a pod starts, and released when it is over.

// limit makes the container limit a number of devices of each resource, in the form example.com/gpu=2.
func limit(c *corev1.Container, limits ...string) {
	list := corev1.ResourceList{}
	for _, l := range limits {
		name, count, _ := strings.Cut(l, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(count)
	}
	c.Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
}

// devicePod returns a pod whose container main limits one GPU.
func devicePod(name string) *corev1.Pod {
	pod := podtest.Pod(name)
	limit(&pod.Spec.Containers[0], "example.com/gpu=1")
	return pod
}

// newCheckedDevices returns devices that fail the test if they are reserved after the sandbox, or released before the
// containers have exited.
func newCheckedDevices(t *testing.T, rt *critest.Runtime) *fakeDevices {
	return &fakeDevices{fault: func(ctx context.Context, c deviceCall) error {
		observed, err := rt.ListPod(ctx, c.uid)
		assert.NoError(t, err)
		switch c.op {
		case "Reserve":
			assert.Equal(t, len(observed.Containers) > 0, len(observed.Sandboxes) > 0, "devices are reserved before the sandbox")
		case "Release":
			assert.True(t, podview.IsTerminated(observed), "devices are released after all containers have exited")
		}
		return nil
	}}
}

func TestDevicesReservedBeforeVolumesAndSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		devices := newCheckedDevices(t, rt)
		volumes := &lifecycletest.Resources{Fault: func(_ context.Context, c lifecycletest.Call) error {
			assert.Equal(t, c.Op != "Release", slices.Contains(devices.reservedPods(), c.UID), "devices are reserved before volumes, and released with them")
			return nil
		}}
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices, Volumes: volumes})
		n.set(devicePod("a"))
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready")
		require.Equal(t, []string{"Reserve", "Container main"}, devices.callsOf("uid-a"))

		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(time.Second)
		require.Equal(t, []string{"Reserve", "Container main", "Reserve", "Container main"}, devices.callsOf("uid-a"), "devices are added at each start")
		time.Sleep(time.Hour)
		require.Len(t, devices.callsOf("uid-a"), 4, "a pod that runs needs no call")
		require.Empty(t, n.errors())
	})
}

// The config of each container has its devices. A plugin cannot set the annotations in which the agent stores its state.
func TestContainerConfigHasDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		configs := map[string]*cri.ContainerConfig{}
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			configs[c.Name] = c
			if c.Name == "init" {
				return critest.ExitAfter(time.Second, 0)
			}
			return critest.Script{}
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{Devices: &fakeDevices{}})
		pod := devicePod("a")
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("side"), podtest.Init("init")}
		limit(&pod.Spec.InitContainers[0], plan.AnnotationCrashLoop+"=1")
		limit(&pod.Spec.InitContainers[1], "example.com/nic=1", "example.com/gpu=2")
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GPU", Value: "mine"}}
		n.set(pod)
		time.Sleep(5 * time.Second)
		n.requireStatus("a", "Running, side: ready, init: exited 0, main: ready")
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}}
		n.set(pod)
		time.Sleep(5 * time.Second)
		synctest.Wait() // the runtime has written configs

		initial := configs["init"]
		require.Equal(t, []string{"example.com/gpu=0", "example.com/nic=0"}, initial.CDIDevices)
		require.Equal(t, []cri.Device{
			{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu", Permissions: "rw"}, {ContainerPath: "/dev/nic", HostPath: "/dev/nic", Permissions: "rw"},
		}, initial.Devices)
		require.Contains(t, initial.Env, cri.EnvVar{Name: "NIC", Value: "/dev/nic"})
		require.Contains(t, initial.Mounts, cri.Mount{ContainerPath: "/opt/nic", HostPath: "/opt/nic", ReadOnly: true})
		require.Equal(t, "/dev/nic", initial.Annotations["example.com/nic"])
		require.Contains(t, configs["main"].Env, cri.EnvVar{Name: "GPU", Value: "mine"}, "the variable of the container wins")
		require.NotContains(t, configs["main"].Env, cri.EnvVar{Name: "GPU", Value: "/dev/gpu"})
		require.Len(t, configs["main"].Devices, 1)
		require.NotContains(t, configs["side"].Annotations, plan.AnnotationCrashLoop)
		require.NotNil(t, configs["debug"])
		require.Empty(t, configs["debug"].Devices)
	})
}

// A rejection fails the pod with the kubelet's reason and message. Nothing is created for the pod, and other pods run.
func TestDeviceRejectionFailsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		const cause = "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected"
		devices := &fakeDevices{fault: func(_ context.Context, c deviceCall) error {
			if c.op == "Reserve" && c.uid == "uid-a" {
				return &podstatus.Rejection{Message: cause, Explanation: "its NUMA node has none"}
			}
			return nil
		}}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices}
		n := startAgent(t, rt, rt, o)
		n.set(devicePod("a"), devicePod("b"))
		time.Sleep(time.Second)
		require.Equal(t, corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "Pod was rejected: " + cause, QOSClass: corev1.PodQOSBestEffort,
		}, n.status("a"))
		require.Equal(t, 1, strings.Count(strings.Join(n.events, " "), "UnexpectedAdmissionError!"))
		require.Equal(t, cause+". its NUMA node has none", n.podEvents[slices.Index(n.events, "UnexpectedAdmissionError!")].Message)
		require.Equal(t, []string{"Reserve", "Release"}, devices.callsOf("uid-a"))
		active, _ := n.reconciler.Active()
		require.Len(t, active, 1)
		state, _ := n.reconciler.Pod("uid-a")
		require.False(t, state.Admitted)
		require.Len(t, rt.Calls("RunPodSandbox"), 1, "nothing is created for a rejected pod")
		n.requireStatus("b", "Running, main: ready")
		n.stop()

		devices.fault = nil // there are devices now
		n = startAgent(t, rt, rt, o)
		n.set(devicePod("a"), devicePod("b"))
		time.Sleep(time.Hour)
		require.Equal(t, "UnexpectedAdmissionError", n.status("a").Reason)
		require.Equal(t, []string{"Reserve", "Release", "Release"}, devices.callsOf("uid-a"), "a failed pod gets no devices")
		require.Empty(t, n.errors())
	})
}

// After an error that is no rejection the pod waits, and reports the cause. It continues as soon as the devices report a change.
func TestPodWaitsForDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var connected atomic.Bool
		devices := &fakeDevices{fault: func(_ context.Context, c deviceCall) error {
			if c.op == "Reserve" && !connected.Load() {
				return errors.New("plugin of example.com/gpu is not connected")
			}
			return nil
		}}
		n := startAgent(t, rt, rt, lifecycle.Options{Devices: devices, Pacing: lifecycle.Pacing{Parallel: 1}})
		n.set(devicePod("a"))
		time.Sleep(30 * time.Second)
		n.requireStatus("a", "Pending, main: ContainerCreating")
		require.Equal(t, "plugin of example.com/gpu is not connected", n.status("a").ContainerStatuses[0].State.Waiting.Message)
		require.Contains(t, n.errors(), "reserve devices: plugin of example.com/gpu is not connected")
		require.Contains(t, n.events, "FailedReserveDevices!")
		require.Equal(t, "Unable to reserve devices: plugin of example.com/gpu is not connected", n.podEvents[0].Message)
		require.Zero(t, ops(rt, "RunPodSandbox"))
		tries := len(devices.callsOf("uid-a"))
		require.Greater(t, tries, 3)
		require.Less(t, tries, 10, "there is a back-off")

		connected.Store(true)
		devices.changed("uid-a")
		time.Sleep(100 * time.Millisecond)
		n.requireStatus("a", "Running, main: ready")
	})
}

// A hung Reserve delays no other pod. It ends after two minutes and is repeated, or when the pod is deleted.
func TestHungReserveDelaysItsPodOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		devices := &fakeDevices{fault: func(ctx context.Context, c deviceCall) error {
			switch {
			case strings.HasPrefix(c.uid, "uid-hangs") && c.op == "Reserve":
				return critest.Hang(ctx)
			case c.op == "Reserve":
				time.Sleep(2 * time.Second)
			}
			return nil
		}}
		n := startAgent(t, rt, rt, lifecycle.Options{Devices: devices, Pacing: lifecycle.Pacing{Parallel: 1}})
		n.set(devicePod("hangs-1"), devicePod("hangs-2"), devicePod("good-1"), devicePod("good-2"))
		time.Sleep(3 * time.Second)
		n.requireStatus("good-1", "Running, main: ready")
		n.requireStatus("good-2", "Running, main: ready")
		n.requireStatus("hangs-1", "Pending, main: ContainerCreating")
		time.Sleep(4 * time.Minute)
		require.Contains(t, n.errors(), "reserve devices: context deadline exceeded")
		require.Equal(t, []string{"Reserve", "Reserve"}, devices.callsOf("uid-hangs-1")[:2])

		n.set(devicePod("good-1"), devicePod("good-2"))
		time.Sleep(time.Second)
		require.Equal(t, []string{"hangs-1", "hangs-2"}, n.removedPods())
		require.Equal(t, []string{"uid-good-1", "uid-good-2"}, devices.reservedPods())
	})
}

// A restarted agent reserves the devices of running containers. It neither restarts nor rejects them, also after an error.
func TestAgentRestartReservesDevicesOfRunningPod(t *testing.T) {
	for name, fault := range map[string]error{
		"reserved": nil, "no plugin": errors.New("no plugin"), "rejection": &podstatus.Rejection{Message: "no devices"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				devices := &fakeDevices{}
				o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices}
				n := startAgent(t, rt, rt, o)
				n.set(devicePod("a"))
				time.Sleep(time.Second)
				n.stop()

				devices.fault = func(_ context.Context, c deviceCall) error {
					time.Sleep(10 * time.Second)
					return fault
				}
				n = startAgent(t, rt, rt, o)
				n.set(devicePod("a"))
				time.Sleep(5 * time.Second)
				n.requireStatus("a", "Running, main: ready") // also while Reserve runs
				time.Sleep(time.Hour)
				n.requireStatus("a", "Running, main: ready")
				require.Equal(t, 1, ops(rt, "StartContainer"))
				require.Zero(t, ops(rt, "StopContainer"))
				if fault == nil {
					require.Equal(t, []string{"Reserve", "Container main", "Reserve"}, devices.callsOf("uid-a"))
					require.Empty(t, n.errors())
				} else {
					require.Contains(t, n.errors(), "reserve devices: "+fault.Error())
					require.Contains(t, n.events, "FailedReserveDevices!")
				}
			})
		})
	}
}

// Reserve is not called for a pod that was deleted or has terminated, and Release is.
func TestReserveNotCalledForDeletedOrTerminatedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		devices := &fakeDevices{}
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices})
		deleted, done := devicePod("deleted"), devicePod("done")
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		done.Status.Phase = corev1.PodSucceeded
		n.set(deleted, done)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"Release"}, devices.callsOf("uid-deleted"))
		require.Equal(t, []string{"Release"}, devices.callsOf("uid-done"))
	})
}

// The devices of a completed pod are released before ResourcesReleased is called. A failed Release is repeated.
func TestDevicesOfCompletedPodReleasedBeforeHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Second, 0)})})
		devices := newCheckedDevices(t, rt)
		check, fails := devices.fault, 3
		devices.fault = func(ctx context.Context, c deviceCall) error {
			if c.op == "Release" && fails > 0 {
				fails--
				return errors.New("record is not writable")
			}
			return check(ctx, c)
		}
		var held [][]string
		var mu sync.Mutex
		var errs []string
		r, stop := run(t, rt, lifecycle.Options{Owner: "me", Devices: devices, Hooks: lifecycle.Hooks{
			ResourcesReleased: func(cri.PodIdentity) { held = append(held, devices.reservedPods()) },
			Error: func(_ cri.PodIdentity, err error, _ time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err.Error())
			},
		}})
		job := devicePod("job")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{job}}))
		time.Sleep(time.Hour)
		stop()
		require.Equal(t, slices.Repeat([]string{"release devices: record is not writable"}, 3), errs)
		require.Len(t, held, 1)
		require.Empty(t, held[0])
		require.Equal(t, []string{"Reserve", "Container main", "Release", "Release", "Release", "Release"}, devices.callsOf("uid-job"))
	})
}

// The devices of a deleted pod are released once its containers have exited, also if its volumes cannot be released. A restarted
// agent releases the devices of an orphaned pod.
func TestDevicesReleasedAfterDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.ExitAfterStop(3*time.Second, 0) }})
		devices := newCheckedDevices(t, rt)
		volumes := &lifecycletest.Resources{Fault: func(_ context.Context, c lifecycletest.Call) error {
			if c.Op == "Release" && c.UID == "uid-busy" {
				return errors.New("device is busy")
			}
			return nil
		}}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Devices: devices, Volumes: volumes}
		n := startAgent(t, rt, rt, o)
		n.set(devicePod("a"), devicePod("busy"), devicePod("orphan"))
		time.Sleep(time.Second)
		n.set(devicePod("orphan"))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"uid-a", "uid-busy", "uid-orphan"}, devices.reservedPods(), "containers still run")
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"uid-orphan"}, devices.reservedPods())
		require.Equal(t, []string{"a"}, n.removedPods())
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set()
		time.Sleep(time.Minute)
		require.Empty(t, devices.reservedPods())
		require.Equal(t, []string{"orphan"}, n.removedPods())
	})
}

// An error of Container fails one start: the other containers of the pod run, and the start is repeated.
func TestDeviceErrorOfContainerFailsItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var mended atomic.Bool
		devices := &fakeDevices{fault: func(ctx context.Context, c deviceCall) error {
			if c.op == "Container" && c.container == "main" && !mended.Load() {
				return errors.New("device plugin PreStartContainer rpc failed with err: no firmware")
			}
			return nil
		}}
		n := startAgent(t, rt, rt, lifecycle.Options{Devices: devices})
		pod := podtest.Pod("a", "main", "other")
		limit(&pod.Spec.Containers[0], "example.com/gpu=1")
		n.set(pod)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Pending, main: CreateContainerConfigError, other: ready")
		require.Equal(t, "device plugin PreStartContainer rpc failed with err: no firmware", n.status("a").ContainerStatuses[0].State.Waiting.Message)
		mended.Store(true)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready, other: ready")
	})
}
