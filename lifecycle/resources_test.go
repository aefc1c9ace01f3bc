// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// Tests of Options.Volumes: volumes are set up before the sandbox, and released after the last container.

// volumePod returns a pod whose container mounts a volume.
func volumePod(name string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return pod
}

// opsOf returns the calls for a pod, in order.
func opsOf(r *lifecycletest.Resources, uid string) (ops []string) {
	for _, c := range r.Calls() {
		if c.UID == uid && c.Op != "Update" {
			ops = append(ops, c.Op)
		}
	}
	return ops
}

// newCheckedVolumes returns volumes that fail the test if they are set up after the sandbox or released before the
// containers have exited.
func newCheckedVolumes(t *testing.T, rt *critest.Runtime) *lifecycletest.Resources {
	return &lifecycletest.Resources{Fault: func(ctx context.Context, c lifecycletest.Call) error {
		observed, err := rt.ListPod(ctx, c.UID)
		assert.NoError(t, err)
		switch c.Op {
		case "Prepare":
			assert.Equal(t, len(observed.Containers) > 0, len(observed.Sandboxes) > 0, "volumes are set up before the sandbox")
		case "Release":
			assert.True(t, podview.IsTerminated(observed), "volumes are released after all containers have exited")
		}
		return nil
	}}
}

func TestVolumesSetUpBeforeSandboxAndReleasedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mounts []cri.Mount
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			mounts = c.Mounts
			return critest.Script{}
		}})
		volumes := newCheckedVolumes(t, rt)
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Volumes: volumes}
		n := startAgent(t, rt, rt, o)
		n.set(volumePod("a"))
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready")
		require.Equal(t, "/volumes/uid-a/data", mounts[0].HostPath)
		require.Equal(t, []string{"Prepare", "Container"}, opsOf(volumes, "uid-a"))

		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(time.Second)
		require.Equal(t, []string{"Prepare", "Container", "Prepare", "Container"}, opsOf(volumes, "uid-a"), "volumes are prepared before each start")

		n.set()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"a"}, n.removedPods())
		require.Empty(t, volumes.PreparedPods())
		require.Empty(t, n.errors())
	})
}

// notifyingVolumes are volumes that implement lifecycle.Notifier.
type notifyingVolumes struct {
	*lifecycletest.Resources
	changed func(uids ...string)
}

func (n *notifyingVolumes) Notify(fn func(uids ...string)) { n.changed = fn }

// A pod continues as soon as its volumes are ready, regardless of its back-off.
func TestPodContinuesAtNotifyOfVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var ready atomic.Bool
		volumes := &notifyingVolumes{Resources: &lifecycletest.Resources{Fault: func(_ context.Context, c lifecycletest.Call) error {
			if c.Op == "Prepare" && !ready.Load() {
				return errors.New("no such config map")
			}
			return nil
		}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Volumes: volumes})
		n.set(volumePod("a"))
		tries := func() int { return len(opsOf(volumes.Resources, "uid-a")) }
		time.Sleep(time.Minute)
		for before := tries(); tries() == before; { // waits until directly after an attempt
			time.Sleep(100 * time.Millisecond)
		}
		ready.Store(true)
		volumes.changed("uid-a")
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready")
	})
}

// A pod that waits for its volumes reports their names, uses no start slot, and retries.
func TestPodWaitsForVolumesWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		fails := 3
		volumes := &lifecycletest.Resources{Fault: func(ctx context.Context, c lifecycletest.Call) error {
			switch {
			case c.Op == "Prepare" && c.UID == "uid-hangs":
				return critest.Hang(ctx)
			case c.Op == "Prepare" && c.UID == "uid-fails" && fails > 0:
				fails--
				return errors.New(`volume "data": no such server`)
			}
			return nil
		}}
		n := startAgent(t, rt, rt, lifecycle.Options{Volumes: volumes, Pacing: lifecycle.Pacing{Parallel: 1}})
		n.set(volumePod("hangs"), volumePod("fails"), volumePod("good"))
		time.Sleep(500 * time.Millisecond)
		n.requireStatus("good", "Running, main: ready")
		require.Contains(t, n.errors(), `prepare volumes: volume "data": no such server`)
		require.Contains(t, n.events, "FailedMount!")
		waits := n.status("fails").ContainerStatuses[0].State.Waiting
		require.Equal(t, "ContainerCreating", waits.Reason)
		require.Equal(t, `volume "data": no such server`, waits.Message)
		time.Sleep(time.Minute)
		n.requireStatus("fails", "Running, main: ready")
		n.requireStatus("hangs", "Pending, main: ContainerCreating")

		n.set()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"fails", "good", "hangs"}, n.removedPods())
		require.Empty(t, volumes.PreparedPods())
	})
}

// A Prepare that hangs times out. The pod reports the timeout and retries.
func TestHungPrepareTimesOutAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		volumes := &lifecycletest.Resources{Fault: func(ctx context.Context, c lifecycletest.Call) error {
			if c.Op == "Prepare" {
				return critest.Hang(ctx)
			}
			return nil
		}}
		n := startAgent(t, rt, rt, lifecycle.Options{Volumes: volumes})
		n.set(volumePod("a"))
		time.Sleep(5 * time.Minute)
		require.Contains(t, n.errors(), "prepare volumes: context deadline exceeded")
		require.GreaterOrEqual(t, len(opsOf(volumes, "uid-a")), 2)
	})
}

// A pod whose volumes cannot be released keeps its name.
func TestUnreleasedVolumesKeepPodAndName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var mended atomic.Bool
		volumes := &lifecycletest.Resources{Fault: func(ctx context.Context, c lifecycletest.Call) error {
			if c.Op == "Release" && !mended.Load() {
				return errors.New("device is busy")
			}
			return nil
		}}
		dir := t.TempDir()
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dir}, Volumes: volumes})
		n.set(volumePod("a"))
		time.Sleep(time.Second)
		n.set()
		time.Sleep(time.Minute)
		require.Empty(t, n.removedPods())
		require.Contains(t, n.errors(), "release volumes: device is busy")
		require.Contains(t, podDirs(t, dir), "uid-a", "the record is kept until the volumes are released")
		mended.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a"}, n.removedPods())
		require.Empty(t, podDirs(t, dir))
	})
}

// The volumes of a completed job are released before ResourcesReleased is called.
func TestVolumesOfCompletedPodReleasedBeforeHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Second, 0)})})
		volumes := newCheckedVolumes(t, rt)
		var held [][]string
		r, stop := run(t, rt, lifecycle.Options{Owner: "me", Volumes: volumes, Hooks: lifecycle.Hooks{
			ResourcesReleased: func(cri.PodIdentity) { held = append(held, volumes.PreparedPods()) },
		}})
		job := volumePod("job")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{job}}))
		time.Sleep(time.Hour)
		stop()
		require.Len(t, held, 1)
		require.Empty(t, held[0])
		require.Equal(t, []string{"Prepare", "Container", "Release"}, opsOf(volumes, "uid-job"), "volumes of a completed pod are released once")
	})
}

// After a crash, the restarted agent releases the volumes of orphaned pods, including a pod that has only volumes.
func TestVolumesOfOrphanedPodsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		volumes := &lifecycletest.Resources{}
		volumes.Fault = func(ctx context.Context, c lifecycletest.Call) error {
			if c.Op == "Prepare" && c.UID == "uid-early" {
				return critest.Hang(ctx)
			}
			return nil
		}
		dir := t.TempDir()
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dir}, Volumes: volumes}
		n := startAgent(t, rt, rt, o)
		n.set(volumePod("early"), volumePod("runs"), volumePod("wanted"))
		time.Sleep(time.Second)
		n.stop()
		require.Equal(t, []string{"uid-early", "uid-runs", "uid-wanted"}, volumes.PreparedPods())

		n = startAgent(t, rt, rt, o)
		time.Sleep(time.Minute)
		require.Len(t, volumes.PreparedPods(), 3, "volumes are kept while no source has reported")
		n.set(volumePod("wanted"))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"uid-wanted"}, volumes.PreparedPods())
		require.Equal(t, []string{"uid-wanted"}, podDirs(t, dir))
		require.Equal(t, []string{"early", "runs"}, n.removedPods())
	})
}

// Update is called after a change of labels, and by a restarted agent for each running pod.
func TestVolumesUpdateCalledForChangedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		volumes := &lifecycletest.Resources{}
		updates := func() (n int) {
			synctest.Wait()
			for _, c := range volumes.Calls() {
				if c.Op == "Update" {
					n++
				}
			}
			return n
		}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Volumes: volumes}
		n := startAgent(t, rt, rt, o)
		n.set(volumePod("a"))
		time.Sleep(time.Hour)
		require.Equal(t, 1, updates())
		pod := volumePod("a")
		pod.Labels = map[string]string{"color": "red"}
		n.set(pod)
		time.Sleep(time.Second)
		require.Equal(t, 2, updates())
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(pod)
		time.Sleep(time.Hour)
		require.Equal(t, 3, updates())
	})
}

// Set refuses pods with volumes that the agent does not support, and names the field.
func TestSetRefusesUnsupportedVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		without := startAgent(t, rt, rt, lifecycle.Options{})
		err := without.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{volumePod("a")}})
		require.ErrorContains(t, err, "pod default/a: spec.volumes[0]: Forbidden: this agent has no volumes but images")
		without.stop()

		with := startAgent(t, rt, rt, lifecycle.Options{Volumes: &lifecycletest.Resources{Refuse: func(pod *corev1.Pod) field.ErrorList {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "volumes").Index(0).Child("emptyDir", "medium"), "no huge pages")}
		}}})
		err = with.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{volumePod("a")}})
		require.ErrorContains(t, err, "spec.volumes[0].emptyDir.medium: Forbidden: no huge pages")
		time.Sleep(time.Minute)
		require.Zero(t, ops(rt, "RunPodSandbox"))
	})
}

// StartAttempted is called for each attempt to start a container, with its error.
func TestStartAttemptedHookCalledPerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.FailFirst(1, critest.FailStart(errors.New("no such program")))})
		var starts []podevents.ContainerStart
		r, stop := run(t, rt, lifecycle.Options{Owner: "me", Hooks: lifecycle.Hooks{
			StartAttempted: func(pod cri.PodIdentity, s podevents.ContainerStart) {
				assert.Equal(t, "a", pod.Name)
				starts = append(starts, s)
			},
		}})
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{podtest.Pod("a")}}))
		time.Sleep(time.Minute)
		stop()
		require.NotEmpty(t, starts)
		last := starts[len(starts)-1]
		require.ErrorContains(t, starts[0].Err, "no such program")
		require.NoError(t, last.Err)
		require.Equal(t, "main", last.Container)
		require.NotEqual(t, starts[0].ID, last.ID)
		require.True(t, slices.ContainsFunc(rt.Calls("StartContainer"), func(c critest.Call) bool { return strings.HasSuffix(c.ID, last.ID) }))
	})
}
