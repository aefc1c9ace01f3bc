// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func webPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u1", Generation: 3},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "web", Image: "busybox:1"}},
		},
	}
}

func life(attempt uint32, state cri.ContainerState) cri.Container {
	return cri.Container{
		ID: "w" + string('0'+rune(attempt)), Name: "web", PodUID: "u1", SandboxID: "s0", Attempt: attempt, State: state,
		ImageRef: "sha256:1", StartedAt: epoch.Add(time.Second), FinishedAt: epoch.Add(time.Minute),
	}
}

func observed(containers ...cri.Container) cri.Pod {
	return cri.Pod{
		Sandboxes:  []cri.Sandbox{{ID: "s0", IPs: []string{"10.0.0.7", "fd00::7"}, CreatedAt: epoch}},
		Containers: containers,
	}
}

func TestOfRunningPod(t *testing.T) {
	st := podstatus.Of(webPod(), observed(life(2, cri.ContainerRunning)), podstatus.Input{
		Now: epoch.Add(time.Hour), HostIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	})
	require.Equal(t, corev1.PodRunning, st.Phase)
	require.Equal(t, int64(3), st.ObservedGeneration)
	require.Equal(t, "10.0.0.7", st.PodIP)
	require.Equal(t, []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}, st.PodIPs)
	require.Equal(t, "192.0.2.1", st.HostIP)
	require.True(t, st.StartTime.Time.Equal(epoch), "start time is the creation of the first sandbox")
	require.Equal(t, "True ", podtest.ConditionOf(st, corev1.PodReady))
	require.Equal(t, "True ", podtest.ConditionOf(st, corev1.ContainersReady))
	require.Equal(t, "True ", podtest.ConditionOf(st, corev1.PodInitialized))
	require.Equal(t, "True ", podtest.ConditionOf(st, corev1.PodScheduled))
	require.Equal(t, "True ", podtest.ConditionOf(st, corev1.PodReadyToStartContainers))
	c := st.ContainerStatuses[0]
	require.Equal(t, int32(2), c.RestartCount)
	require.True(t, c.Ready)
	require.True(t, *c.Started)
	require.Equal(t, "sha256:1", c.ImageID)
}

func TestOfPodOnHostNetworkHasNodeAddresses(t *testing.T) {
	pod := webPod()
	pod.Spec.HostNetwork = true
	up := observed()
	up.Sandboxes[0].IPs = nil // the runtime reports no address on the host network
	st := podstatus.Of(pod, up, podstatus.Input{Now: epoch, HostIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	require.Equal(t, "192.0.2.1", st.PodIP)
}

// A container in back-off has state Waiting and its exit as last state, as in kubectl.
func TestOfContainerInBackOffIsWaitingWithLastState(t *testing.T) {
	dead := life(0, cri.ContainerExited)
	dead.ExitCode, dead.Reason = 3, "Error"
	in := podstatus.Input{Now: epoch, Waiting: map[string]podstatus.Waiting{
		"web": {Reason: podstatus.ReasonCrashLoopBackOff, Message: "back-off 10s"},
	}}
	st := podstatus.Of(webPod(), observed(dead), in)
	c := st.ContainerStatuses[0]
	require.Equal(t, "CrashLoopBackOff", c.State.Waiting.Reason)
	require.Equal(t, int32(3), c.LastTerminationState.Terminated.ExitCode)
	require.Equal(t, corev1.PodRunning, st.Phase)
	require.Equal(t, "False ContainersNotReady", podtest.ConditionOf(st, corev1.PodReady))
}

func TestOfRestartedContainerHasPreviousExitAsLastState(t *testing.T) {
	dead := life(0, cri.ContainerExited)
	dead.ExitCode = 137
	st := podstatus.Of(webPod(), observed(life(1, cri.ContainerRunning), dead), podstatus.Input{Now: epoch})
	require.NotNil(t, st.ContainerStatuses[0].State.Running)
	require.Equal(t, int32(137), st.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)

	t.Run("exited instance was removed", func(t *testing.T) {
		again := podstatus.Of(webPod(), observed(life(1, cri.ContainerRunning)),
			podstatus.Input{Now: epoch, Previous: &st})
		require.Equal(t, int32(137), again.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
	})
}

// A container that ran and that the runtime has lost gets exit code 137, and its restart counts.
func TestOfLostRunningContainerIsStatusUnknown(t *testing.T) {
	before := podstatus.Of(webPod(), observed(life(0, cri.ContainerRunning)), podstatus.Input{Now: epoch})
	st := podstatus.Of(webPod(), observed(), podstatus.Input{Now: epoch, Previous: &before})
	c := st.ContainerStatuses[0]
	require.NotNil(t, c.State.Waiting)
	require.Equal(t, "ContainerStatusUnknown", c.LastTerminationState.Terminated.Reason)
	require.Equal(t, int32(137), c.LastTerminationState.Terminated.ExitCode)
	require.Equal(t, int32(1), c.RestartCount)
	require.Equal(t, corev1.PodRunning, st.Phase, "pod that ran does not return to Pending")

	t.Run("deleted pod terminates", func(t *testing.T) {
		st := podstatus.Of(webPod(), observed(), podstatus.Input{Now: epoch, Previous: &before, Deleted: true})
		require.Equal(t, int32(137), st.ContainerStatuses[0].State.Terminated.ExitCode)
		require.Equal(t, int32(0), st.ContainerStatuses[0].RestartCount)
		require.Equal(t, corev1.PodFailed, st.Phase)
	})
}

// If another program removes an exited container, its last status is kept.
func TestOfRemovedExitedContainerKeepsStatus(t *testing.T) {
	dead := life(3, cri.ContainerExited)
	dead.ExitCode, dead.User = 5, &cri.ContainerUser{UID: 7}
	before := podstatus.Of(webPod(), observed(dead), podstatus.Input{Now: epoch})
	st := podstatus.Of(webPod(), observed(), podstatus.Input{Now: epoch, Previous: &before})
	require.Equal(t, before.ContainerStatuses, st.ContainerStatuses)

	t.Run("attempt of the next instance is 0", func(t *testing.T) {
		st := podstatus.Of(webPod(), observed(life(0, cri.ContainerRunning)), podstatus.Input{Now: epoch, Previous: &st})
		require.Equal(t, int32(4), st.ContainerStatuses[0].RestartCount)
		require.Equal(t, int32(5), st.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
		again := podstatus.Of(webPod(), observed(life(0, cri.ContainerRunning)), podstatus.Input{Now: epoch, Previous: &st})
		require.Equal(t, int32(4), again.ContainerStatuses[0].RestartCount, "instance is counted once")
	})
}

// The containers of a pod are removed one by one. The status of a terminated instance is kept while only its predecessor is left.
func TestOfTerminatedInstanceKeptWhilePredecessorExists(t *testing.T) {
	first, second := life(0, cri.ContainerExited), life(1, cri.ContainerExited)
	second.ExitCode = 137
	for _, deleted := range []bool{true, false} {
		in := podstatus.Input{Now: epoch, RuntimeName: "containerd", Deleted: deleted}
		before := podstatus.Of(webPod(), observed(second, first), in)
		require.Equal(t, int32(137), before.ContainerStatuses[0].State.Terminated.ExitCode)
		in.Previous = &before
		require.Equal(t, before.ContainerStatuses, podstatus.Of(webPod(), observed(first), in).ContainerStatuses)
		require.Equal(t, before.ContainerStatuses, podstatus.Of(webPod(), observed(), in).ContainerStatuses)
	}
}

// A deleted pod starts no container: the exit of the last instance is kept, although the next instance was created.
func TestOfDeletedPodIgnoresCreatedSuccessor(t *testing.T) {
	in := podstatus.Input{Now: epoch, RuntimeName: "containerd", Deleted: true}
	before := podstatus.Of(webPod(), observed(life(0, cri.ContainerExited)), in)
	in.Previous = &before
	require.Equal(t, before.ContainerStatuses, podstatus.Of(webPod(), observed(life(1, cri.ContainerCreated), life(0, cri.ContainerExited)), in).ContainerStatuses)
}

func TestOfPrefixesContainerIDWithRuntimeName(t *testing.T) {
	bare := podstatus.Of(webPod(), observed(life(0, cri.ContainerExited)), podstatus.Input{Now: epoch})
	require.Equal(t, "w0", bare.ContainerStatuses[0].ContainerID)
	st := podstatus.Of(webPod(), observed(life(0, cri.ContainerExited)),
		podstatus.Input{Now: epoch, Previous: &bare, RuntimeName: "containerd"})
	c := st.ContainerStatuses[0]
	require.Equal(t, "containerd://w0", c.ContainerID)
	require.Equal(t, "containerd://w0", c.State.Terminated.ContainerID)
	require.Nil(t, c.LastTerminationState.Terminated, "the prefix does not make it another container")
}

// The status of a container that runs with a previous image names that image.
func TestOfContainerWithPreviousImageNamesIt(t *testing.T) {
	old := life(0, cri.ContainerRunning)
	for want, image := range map[string]cri.ImageSpec{
		"docker.io/library/busybox:0": {Image: "docker.io/library/busybox:0"},
		"busybox:0":                   {Image: "sha256:0", UserSpecifiedImage: "busybox:0"},
		"busybox:1":                   {}, // no image reported
	} {
		old.Image = image
		st := podstatus.Of(webPod(), observed(old), podstatus.Input{Now: epoch})
		require.Equal(t, want, st.ContainerStatuses[0].Image)
	}
}

// RecursiveReadOnly in the status is the state in the container, not the requested one.
func TestOfMountsReportsActualRecursiveReadOnly(t *testing.T) {
	pod, running := webPod(), life(0, cri.ContainerRunning)
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "data", MountPath: "/data"},
		{Name: "conf", MountPath: "conf", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)},
	}
	running.Mounts = []cri.Mount{{ContainerPath: "/data"}, {ContainerPath: "/conf", ReadOnly: true, RecursiveReadOnly: true}}
	mounts := func(mode corev1.RecursiveReadOnlyMode) []corev1.VolumeMountStatus {
		return []corev1.VolumeMountStatus{
			{Name: "data", MountPath: "/data"}, {Name: "conf", MountPath: "conf", ReadOnly: true, RecursiveReadOnly: &mode},
		}
	}
	waits := podstatus.Of(pod, observed(), podstatus.Input{Now: epoch})
	require.Equal(t, mounts(corev1.RecursiveReadOnlyDisabled), waits.ContainerStatuses[0].VolumeMounts)
	runs := podstatus.Of(pod, observed(running), podstatus.Input{Now: epoch, Previous: &waits})
	require.Equal(t, mounts(corev1.RecursiveReadOnlyEnabled), runs.ContainerStatuses[0].VolumeMounts)
	gone := podstatus.Of(pod, observed(), podstatus.Input{Now: epoch, Previous: &runs})
	require.Equal(t, runs.ContainerStatuses[0].VolumeMounts, gone.ContainerStatuses[0].VolumeMounts)
}

// A lost init container is reported as completed if a regular container has run since, unless it must run again.
func TestOfLostInitContainerIsCompletedUnlessItRunsAgain(t *testing.T) {
	pod := webPod()
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox:1"}}
	in := podstatus.Input{Now: epoch}
	st := podstatus.Of(pod, observed(life(0, cri.ContainerExited)), in)
	require.Equal(t, "Completed", st.InitContainerStatuses[0].State.Terminated.Reason)
	require.True(t, st.InitContainerStatuses[0].Ready)

	in.Waiting = map[string]podstatus.Waiting{"setup": {Reason: "ImagePullBackOff"}}
	st = podstatus.Of(pod, observed(life(0, cri.ContainerExited)), in)
	require.Equal(t, "ImagePullBackOff", st.InitContainerStatuses[0].State.Waiting.Reason)
	require.False(t, st.InitContainerStatuses[0].Ready)
}

// A restart of all containers excludes ephemeral containers.
func TestOfEphemeralContainerIgnoresRestartOfAllContainers(t *testing.T) {
	pod, web, debug := webPod(), life(1, cri.ContainerRunning), life(0, cri.ContainerExited)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	web.Annotations = map[string]string{podview.AnnotationGeneration: "1"}
	debug.ID, debug.Name = "d0", "debug"
	st := podstatus.Of(pod, observed(web, debug), podstatus.Input{Now: epoch})
	require.NotNil(t, st.EphemeralContainerStatuses[0].State.Terminated)
}

func TestOfKeepsTerminalPhase(t *testing.T) {
	previous := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}
	st := podstatus.Of(webPod(), observed(life(0, cri.ContainerRunning)),
		podstatus.Input{Now: epoch, Previous: &previous})
	require.Equal(t, corev1.PodFailed, st.Phase)
	require.Equal(t, "Evicted", st.Reason)
	require.Equal(t, "low on memory", st.Message)
}

func TestOfKeepsTransitionTimesAndForeignConditions(t *testing.T) {
	first := podstatus.Of(webPod(), observed(life(0, cri.ContainerRunning)), podstatus.Input{Now: epoch})
	first.Conditions = append(first.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionFalse})
	pod := webPod()
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	second := podstatus.Of(pod, observed(life(0, cri.ContainerRunning)),
		podstatus.Input{Now: epoch.Add(time.Hour), Previous: &first})
	require.Equal(t, "False ReadinessGatesNotReady", podtest.ConditionOf(second, corev1.PodReady))
	require.Equal(t, "False ", podtest.ConditionOf(second, "example.com/gate"))
	for _, c := range second.Conditions {
		switch c.Type {
		case corev1.PodReady:
			require.True(t, c.LastTransitionTime.Time.Equal(epoch.Add(time.Hour)), "condition Ready has changed")
		case corev1.ContainersReady:
			require.True(t, c.LastTransitionTime.Time.Equal(epoch), "condition ContainersReady has not changed")
		}
	}
}

// Conditions of the previous status and of the pod object are not repeated.
func TestOfDoesNotRepeatConditions(t *testing.T) {
	pod := webPod()
	pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	in := podstatus.Input{Now: epoch, Resize: resize.Decision{Reason: corev1.PodReasonDeferred, Error: "no room"}}
	first := podstatus.Of(pod, observed(life(0, cri.ContainerRunning)), in)
	require.Len(t, first.Conditions, 8, "all conditions that the agent owns")

	pod.Status, in.Previous = first, &first
	second := podstatus.Of(pod, observed(life(0, cri.ContainerRunning)), in)
	require.ElementsMatch(t, first.Conditions, second.Conditions)
}

// A container of a terminated pod whose exit was not observed is reported as failed, unless it waited for an init container.
func TestTerminateContainersSetsExit137WithoutObservedExit(t *testing.T) {
	setup := func(name string) corev1.Container { return corev1.Container{Name: name} }
	tests := map[string]struct {
		init []corev1.Container
		have []cri.Container
		want string
	}{
		"no container ran":      {want: "Failed, web: exited 137"},
		"no init container ran": {init: []corev1.Container{setup("a"), setup("b")}, want: "Failed, a: exited 137, b: PodInitializing, web: PodInitializing"},
		"second init container was killed": {
			init: []corev1.Container{setup("a"), setup("b"), setup("c")},
			have: []cri.Container{{ID: "b", Name: "b", State: cri.ContainerExited, ExitCode: 143, SandboxID: "s0"}},
			want: "Failed, a: exited 137, b: exited 143, c: PodInitializing, web: PodInitializing",
		},
		"init container succeeded": {
			init: []corev1.Container{setup("a")},
			have: []cri.Container{{ID: "a", Name: "a", State: cri.ContainerExited, SandboxID: "s0"}},
			want: "Failed, a: exited 0, web: exited 137",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := webPod()
			pod.Spec.InitContainers = tt.init
			gone := observed(tt.have...)
			gone.Sandboxes[0].State = cri.SandboxNotReady
			st := podstatus.Of(pod, gone, podstatus.Input{Now: epoch, Deleted: true})
			podstatus.TerminateContainers(&st)
			require.Equal(t, tt.want, podtest.Describe(st))
			again := podstatus.Of(pod, cri.Pod{}, podstatus.Input{Now: epoch, Deleted: true, Previous: &st})
			require.Equal(t, tt.want, podtest.Describe(again), "status is kept when the runtime lists no container")
		})
	}
}

func TestOfOrdersPodIPsByNodeFamily(t *testing.T) {
	for node, want := range map[string][]corev1.PodIP{
		"192.0.2.1":   {{IP: "10.0.0.7"}, {IP: "fd00::7"}},
		"2001:db8::1": {{IP: "fd00::7"}, {IP: "10.0.0.7"}},
	} {
		up := observed()
		up.Sandboxes[0].IPs = []string{"fd00::7", "10.0.0.7", "10.0.0.8"}
		st := podstatus.Of(webPod(), up, podstatus.Input{Now: epoch, HostIPs: []netip.Addr{netip.MustParseAddr(node)}})
		require.Equal(t, want, st.PodIPs)
		require.Equal(t, want[0].IP, st.PodIP)
	}
}

// Addresses in an unusual notation of a CNI plugin are normalized, not dropped.
func TestOfNormalizesPodIPs(t *testing.T) {
	up := observed()
	up.Sandboxes[0].IPs = []string{"10.0.0.256", "010.000.0.01", "fd00::00007"}
	st := podstatus.Of(webPod(), up, podstatus.Input{Now: epoch})
	require.Equal(t, []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::7"}}, st.PodIPs)
}

// A pod on the host network keeps its reported address until its sandbox is replaced, for example by a reboot of the node.
func TestOfHostNetworkPodKeepsAddressesWithItsSandbox(t *testing.T) {
	nodes := func(ips ...string) (addrs []netip.Addr) {
		for _, ip := range ips {
			addrs = append(addrs, netip.MustParseAddr(ip))
		}
		return addrs
	}
	for name, row := range map[string]struct {
		runtime, before []string
		node            []netip.Addr
		down, terminal  bool
		phase           corev1.PodPhase
		want            []string
	}{
		"addresses of the node":                        {node: nodes("192.0.2.1", "2001:db8::1"), want: []string{"192.0.2.1", "2001:db8::1"}},
		"no addresses":                                 {},
		"runtime address first":                        {runtime: []string{"192.0.2.9"}, node: nodes("192.0.2.1"), before: []string{"192.0.2.1"}, want: []string{"192.0.2.9"}},
		"node address of the other family added":       {runtime: []string{"192.0.2.9"}, node: nodes("192.0.2.1", "2001:db8::1"), want: []string{"192.0.2.9", "2001:db8::1"}},
		"reported address kept":                        {before: []string{"192.0.2.8"}, node: nodes("192.0.2.1"), want: []string{"192.0.2.8"}},
		"reported address kept without node addresses": {before: []string{"192.0.2.8"}, want: []string{"192.0.2.8"}},
		"node becomes dual-stack":                      {before: []string{"192.0.2.8"}, node: nodes("192.0.2.1", "2001:db8::1"), want: []string{"192.0.2.8", "2001:db8::1"}},
		"second address of the same family not added":  {before: []string{"192.0.2.8"}, node: nodes("2001:db8::1", "192.0.2.1"), want: []string{"192.0.2.8"}},
		"both reported addresses kept":                 {before: []string{"192.0.2.8", "2001:db8::8"}, node: nodes("192.0.2.1", "2001:db8::1"), want: []string{"192.0.2.8", "2001:db8::8"}},
		"sandbox replaced":                             {down: true, before: []string{"192.0.2.8"}, node: nodes("192.0.2.1"), want: []string{"192.0.2.1"}},
		"deleted pod":                                  {down: true, terminal: true, before: []string{"192.0.2.8"}, node: nodes("192.0.2.1"), want: []string{"192.0.2.8"}},
		"succeeded pod":                                {down: true, phase: corev1.PodSucceeded, before: []string{"192.0.2.8"}, node: nodes("192.0.2.1"), want: []string{"192.0.2.8"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, up := webPod(), observed()
			pod.Spec.HostNetwork = true
			up.Sandboxes[0].IPs = row.runtime
			if row.down {
				up.Sandboxes[0].State = cri.SandboxNotReady
			}
			previous := corev1.PodStatus{Phase: row.phase}
			for _, ip := range row.before {
				previous.PodIPs = append(previous.PodIPs, corev1.PodIP{IP: ip})
			}
			st := podstatus.Of(pod, up, podstatus.Input{
				Now: epoch, HostIPs: row.node, Previous: &previous, Deleted: row.terminal,
			})
			var got []string
			for _, ip := range st.PodIPs {
				got = append(got, ip.IP)
			}
			require.Equal(t, row.want, got)
		})
	}
}
