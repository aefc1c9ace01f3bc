// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
)

func TestInitialBuildsNewNode(t *testing.T) {
	in := facts()
	in.Config.Labels = map[string]string{"disk": "ssd", corev1.LabelArchStable: "other"}
	in.Config.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	in.Config.ExternalCloudProvider = true
	in.Config.ProviderID = "cloud://1"
	in.Machine.Swap = 1 << 30
	node, events := nodestatus.Initial(in)

	assert.Equal(t, "n1", node.Name)
	assert.Equal(t, map[string]string{
		corev1.LabelHostname: "n1", corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: "other",
		nodestatus.LabelBetaOS: runtime.GOOS, nodestatus.LabelBetaArch: runtime.GOARCH, "disk": "ssd",
	}, node.Labels, "configured labels have precedence")
	assert.Equal(t, map[string]string{nodestatus.AnnotationAttachDetach: "true"}, node.Annotations)
	assert.Equal(t, []corev1.Taint{
		{Key: "gpu", Effect: corev1.TaintEffectNoSchedule},
		{Key: nodestatus.TaintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule},
	}, node.Spec.Taints)
	assert.Len(t, in.Config.Taints, 1, "the configuration is not modified")
	assert.Equal(t, "cloud://1", node.Spec.ProviderID)

	s := node.Status
	assert.Equal(t, map[string]string{"cpu": "4", "memory": "10Gi", "ephemeral-storage": "107374182400", "pods": "110"}, amounts(s.Capacity))
	assert.Equal(t, corev1.NodeSystemInfo{
		MachineID: "m", SystemUUID: "s", BootID: "b1", KernelVersion: "6.12.0", OSImage: "Debian GNU/Linux 13 (trixie)",
		ContainerRuntimeVersion: "containerd://2.4.0", KubeletVersion: "v1.37.1+nodeagent",
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		Swap: &corev1.NodeSwapStatus{Capacity: new(int64(1 << 30))}, RunningInUserNamespace: new(false),
	}, s.NodeInfo)
	assert.Equal(t, int32(10250), s.DaemonEndpoints.KubeletEndpoint.Port)
	assert.Equal(t, []string{
		"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
	}, s.DeclaredFeatures)
	assert.True(t, *s.Features.SupplementalGroupsPolicy)
	require.Len(t, s.RuntimeHandlers, 2)
	assert.Equal(t, "", s.RuntimeHandlers[0].Name, "by name")
	assert.True(t, *s.RuntimeHandlers[0].Features.UserNamespaces)
	assert.False(t, *s.RuntimeHandlers[1].Features.RecursiveReadOnlyMounts)

	require.Len(t, s.Conditions, 4)
	assert.Equal(t, corev1.NodeCondition{
		Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
		Message:           "kubelet has sufficient memory available",
		LastHeartbeatTime: metav1.NewTime(start), LastTransitionTime: metav1.NewTime(start),
	}, s.Conditions[0])
	assert.Equal(t, corev1.NodeReady, s.Conditions[3].Type, "Ready is the last condition")
	assert.Equal(t, []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"}, reasons(events),
		"no event for Ready, which has not changed")
	assert.Equal(t, nodestatus.Event{
		Type: corev1.EventTypeNormal, Reason: "NodeHasSufficientMemory", Message: "Node n1 status is now: NodeHasSufficientMemory",
	}, events[0])
}

// The runtime of a node goes down and recovers.
func TestReadyConditionFollowsRuntime(t *testing.T) {
	in := facts()
	node, _ := nodestatus.Initial(in)
	at := func(after time.Duration) []string {
		var events []nodestatus.Event
		in.Now = start.Add(after)
		node, events = nodestatus.Build(node, in)
		assert.Equal(t, in.Now, condition(node, corev1.NodeReady).LastHeartbeatTime.Time)
		return reasons(events)
	}
	assert.Empty(t, at(29*time.Second))
	assert.Equal(t, corev1.ConditionTrue, condition(node, corev1.NodeReady).Status)

	assert.Equal(t, []string{"NodeNotReady"}, at(30*time.Second))
	assert.Empty(t, at(40*time.Second), "told once")
	ready := condition(node, corev1.NodeReady)
	assert.Equal(t, corev1.ConditionFalse, ready.Status)
	assert.Equal(t, "KubeletNotReady", ready.Reason)
	assert.Equal(t, "container runtime is down", ready.Message)
	assert.Equal(t, start.Add(30*time.Second), ready.LastTransitionTime.Time, "kept")

	in.Runtime = containerd(start.Add(50 * time.Second))
	assert.Equal(t, []string{"NodeReady"}, at(50*time.Second))
	ready = condition(node, corev1.NodeReady)
	assert.Equal(t, "KubeletReady", ready.Reason)
	assert.Equal(t, start.Add(50*time.Second), ready.LastTransitionTime.Time)
}

func TestReadyMessageNamesReasons(t *testing.T) {
	notReady := cri.Status{Conditions: []cri.Condition{
		{Type: cri.ConditionRuntimeReady, Reason: "R", Message: "M"}, {Type: cri.ConditionNetworkReady, Reason: "N", Message: "cni"},
	}}
	for _, test := range []struct {
		name   string
		change func(*nodestatus.Facts)
		want   string
	}{
		{"healthy", func(*nodestatus.Facts) {}, "kubelet is posting ready status"},
		{
			"never queried", func(in *nodestatus.Facts) { in.Runtime = nodestatus.RuntimeState{} },
			"[container runtime status check may not have completed yet, network state unknown]",
		},
		{
			"never ready", func(in *nodestatus.Facts) { in.Runtime = nodestatus.RuntimeState{}.WithStatus(notReady, start) },
			"[container runtime status check may not have completed yet, " +
				"container runtime not ready: RuntimeReady=false reason:R message:M, " +
				"container runtime network not ready: NetworkReady=false reason:N message:cni]",
		},
		{
			"not ready any more", func(in *nodestatus.Facts) { in.Runtime = in.Runtime.WithStatus(cri.Status{}, start) },
			"[container runtime not ready: <nil>, container runtime network not ready: <nil>]",
		},
		{"unhealthy checks", func(in *nodestatus.Facts) {
			in.Health.Unhealthy = []error{errors.New("PLEG is not healthy: slow"), errors.New("PLEG is not healthy: slow")}
		}, "PLEG is not healthy: slow"},
		{"storage, shutdown and capacity, in this order", func(in *nodestatus.Facts) {
			in.Health.Storage, in.Health.ShuttingDown = errors.New("no CSINode"), true
			in.Machine.Memory, in.Machine.RootFS = 0, 0
		}, "[no CSINode, node is shutting down, missing node capacity for resources: memory, ephemeral-storage]"},
		{
			"local storage disabled", func(in *nodestatus.Facts) { in.Machine.RootFS, in.Config.NoLocalStorageCapacity = 0, true },
			"kubelet is posting ready status",
		},
		{
			"a warning", func(in *nodestatus.Facts) { in.Health.Warning = errors.New("no hugetlb") },
			"kubelet is posting ready status. WARNING: no hugetlb",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := facts()
			test.change(&in)
			node, _ := nodestatus.Initial(in)
			assert.Equal(t, test.want, condition(node, corev1.NodeReady).Message)
		})
	}
}

// A runtime may report a message of any length.
func TestReadyMessageIsTruncated(t *testing.T) {
	in := facts()
	in.Runtime = in.Runtime.WithStatus(cri.Status{Conditions: []cri.Condition{{
		Type: cri.ConditionRuntimeReady, Message: strings.Repeat("ä\xff", 1<<20),
	}}}, start)
	in.Health.Warning = errors.New(strings.Repeat("w", 1<<20))
	node, _ := nodestatus.Initial(in)
	message := condition(node, corev1.NodeReady).Message
	assert.LessOrEqual(t, len(message), 16<<10)
	assert.Equal(t, strings.ToValidUTF8(message, ""), message)
}

func TestPressureConditionsAndEvents(t *testing.T) {
	in := facts()
	node, _ := nodestatus.Initial(in)
	node.Status.Conditions[0].Message = "of an older version"
	node.Status.Conditions = append([]corev1.NodeCondition{{Type: "KernelDeadlock", Status: corev1.ConditionTrue}}, node.Status.Conditions...)
	build := func(after time.Duration) []string {
		var events []nodestatus.Event
		in.Now = start.Add(after)
		node, events = nodestatus.Build(node, in)
		return reasons(events)
	}
	assert.Empty(t, build(time.Second))
	memory := condition(node, corev1.NodeMemoryPressure)
	assert.Equal(t, "of an older version", memory.Message, "a message is changed only with its status")
	assert.Equal(t, start, memory.LastTransitionTime.Time)
	assert.Equal(t, start.Add(time.Second), memory.LastHeartbeatTime.Time)

	in.Health = nodestatus.Health{MemoryPressure: true, DiskPressure: true, PIDPressure: true}
	assert.Equal(t, []string{"NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID"}, build(2*time.Second))
	assert.Empty(t, build(3*time.Second))
	memory = condition(node, corev1.NodeMemoryPressure)
	assert.Equal(t, "KubeletHasInsufficientMemory", memory.Reason)
	assert.Equal(t, "kubelet has insufficient memory available", memory.Message)
	assert.Equal(t, start.Add(2*time.Second), memory.LastTransitionTime.Time)
	assert.Equal(t, corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue}, node.Status.Conditions[0], "conditions of other clients are kept")

	in.Health = nodestatus.Health{}
	assert.Equal(t, []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"}, build(4*time.Second))
}

// The Node object keeps the old boot ID until a patch succeeds, so that several calls of Build detect one reboot.
func TestRebootEventIsReturnedOncePerProcess(t *testing.T) {
	in := facts()
	node, _ := nodestatus.Initial(in)
	in.Machine.BootID = ""
	_, events := nodestatus.Build(node, in)
	assert.Empty(t, events, "an unreadable boot ID is no reboot")

	in.Machine.BootID = "b2"
	total := 0
	for range 5 {
		_, events := nodestatus.Build(node, in)
		in.Announced = in.Announced.WithEvents(events)
		for _, e := range events {
			total++
			assert.Equal(t, nodestatus.Event{
				Type: corev1.EventTypeWarning, Reason: "Rebooted", Message: "Node n1 has been rebooted, boot id: b2",
			}, e)
		}
	}
	assert.Equal(t, 1, total)
}

func TestEventForChangedUnschedulable(t *testing.T) {
	in := facts()
	node, _ := nodestatus.Initial(in)
	var told []string
	for _, unschedulable := range []bool{false, true, true, false, false, true} {
		node.Spec.Unschedulable = unschedulable
		var events []nodestatus.Event
		node, events = nodestatus.Build(node, in)
		in.Announced = in.Announced.WithEvents(events)
		told = append(told, reasons(events)...)
	}
	assert.Equal(t, []string{"NodeNotSchedulable", "NodeSchedulable", "NodeNotSchedulable"}, told)
}

func TestBuildListsLargestImages(t *testing.T) {
	in := facts()
	for i := range 60 {
		in.Images = append(in.Images, cri.Image{ID: fmt.Sprintf("%03d", i), Size: uint64(i / 2), RepoTags: []string{fmt.Sprint(i)}})
	}
	in.Images[59].RepoTags = []string{"1", "2", "3", "4", "5", "6", "7"}
	in.Images[59].RepoDigests = []string{"a", "b"}
	for _, test := range []struct {
		limit *int32
		want  int
	}{{nil, 50}, {new(int32(-1)), 60}, {new(int32(0)), 0}, {new(int32(100)), 60}} {
		in.Config.MaxImages = test.limit
		node, _ := nodestatus.Initial(in)
		images := node.Status.Images
		require.Len(t, images, test.want)
		if test.want == 0 {
			continue
		}
		assert.Equal(t, corev1.ContainerImage{Names: []string{"a", "b", "1", "2", "3"}, SizeBytes: 29}, images[0], "the largest image")
		assert.Equal(t, []string{"58"}, images[1].Names, "images of equal size are sorted by descending ID")
	}

	node, _ := nodestatus.Initial(in)
	in.Images, in.ImagesKnown = nil, false
	later, _ := nodestatus.Build(node, in)
	assert.Equal(t, node.Status.Images, later.Status.Images, "images stay while they are unknown")
}

func TestBuildKeepsVolumesInUseWhileUnknown(t *testing.T) {
	in := facts()
	in.VolumesInUse = []corev1.UniqueVolumeName{"b", "a"}
	node, _ := nodestatus.Initial(in)
	assert.Equal(t, []corev1.UniqueVolumeName{"a", "b"}, node.Status.VolumesInUse)
	in.VolumesInUse, in.VolumesKnown = nil, false
	node, _ = nodestatus.Build(node, in)
	assert.Equal(t, []corev1.UniqueVolumeName{"a", "b"}, node.Status.VolumesInUse, "volumes stay while they are unknown after a restart")
	in.VolumesKnown = true
	node, _ = nodestatus.Build(node, in)
	assert.Empty(t, node.Status.VolumesInUse)
}

func TestBuildSetsRuntimeVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v2.4.0": "containerd://2.4.0", "1.7.27-rc.1+abc": "containerd://1.7.27-rc.1+abc", "1.2.3.4": "containerd://1.2.3.4",
		"main": "containerd://Unknown", "": "containerd://Unknown",
	} {
		in := facts()
		in.Runtime = in.Runtime.WithVersion(cri.Version{RuntimeName: "containerd", RuntimeVersion: version})
		node, _ := nodestatus.Initial(in)
		assert.Equal(t, want, node.Status.NodeInfo.ContainerRuntimeVersion, version)
	}
	in := facts()
	node, _ := nodestatus.Initial(in)
	in.Runtime = nodestatus.RuntimeState{}
	node, _ = nodestatus.Build(node, in)
	assert.Equal(t, "containerd://2.4.0", node.Status.NodeInfo.ContainerRuntimeVersion, "the version stays while the runtime is unknown")
	assert.NotEmpty(t, node.Status.RuntimeHandlers)
}

// Build of a built object returns an equal object. Build does not modify its arguments, and keeps fields of other clients.
func TestBuildOfBuiltNodeIsUnchanged(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds(1000) {
		previous, in := randomNode(r), randomFacts(r)
		before := previous.DeepCopy()
		node, events := nodestatus.Build(previous, in)
		require.Equal(t, before, previous)

		in.Announced = in.Announced.WithEvents(events)
		again, events := nodestatus.Build(node, in)
		require.Equal(t, node, again)
		require.Empty(t, events)
		require.False(t, nodestatus.Changed(node, again))

		require.Equal(t, previous.Spec, node.Spec)
		require.Equal(t, previous.Status.VolumesAttached, node.Status.VolumesAttached)
		require.Equal(t, condition(previous, corev1.NodeNetworkUnavailable), condition(node, corev1.NodeNetworkUnavailable))
		require.Equal(t, "3", amounts(node.Status.Capacity)["cluster.example.com/x"])
		require.Equal(t, "1", node.Labels["theirs"])
	}
}
