// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

func TestSignalNames(t *testing.T) {
	for _, row := range []struct {
		name cri.Signal
		want v1.Signal
	}{
		{"", v1.Signal_SIGNAL_RUNTIME_DEFAULT},
		{"SIGTERM", v1.Signal_SIGNAL_SIGTERM},
		{"SIGRTMIN", v1.Signal_SIGNAL_SIGRTMIN},
		{"SIGRTMIN+3", v1.Signal_SIGNAL_SIGRTMINPLUS3},
		{"SIGRTMAX-14", v1.Signal_SIGNAL_SIGRTMAXMINUS14},
		{"SIGRTMAX", v1.Signal_SIGNAL_SIGRTMAX},
	} {
		got, err := cripb.EncodeSignal(row.name)
		require.NoError(t, err)
		assert.Equal(t, row.want, got)
	}
	for n := range v1.Signal_name {
		got, err := cripb.EncodeSignal(cripb.DecodeSignal(v1.Signal(n)))
		require.NoError(t, err)
		assert.Equal(t, v1.Signal(n), got)
	}
	for _, bad := range []cri.Signal{"TERM", "sigterm", "15", "SIGRTMINPLUS3", "SIGRTMIN+99", "RUNTIME_DEFAULT", "SIG"} {
		_, err := cripb.EncodeSignal(bad)
		assert.EqualError(t, err, `stop signal "`+string(bad)+`": unknown`)
	}
	_, err := cripb.EncodeContainerConfig(&cri.ContainerConfig{StopSignal: "SIGNOPE"})
	assert.EqualError(t, err, `stop signal "SIGNOPE": unknown`)
	assert.Zero(t, cripb.EncodeContainerStatus(&cri.Container{StopSignal: "SIGNOPE"}).GetStopSignal())
}

// Enumerations are converted by number, so the numbers must have the same meaning in struct and message.
func TestEnumerationsHaveTheSameNumbers(t *testing.T) {
	assert.EqualValues(t, v1.PodSandboxState_SANDBOX_NOTREADY, cri.SandboxNotReady)
	assert.EqualValues(t, v1.ContainerState_CONTAINER_RUNNING, cri.ContainerRunning)
	assert.EqualValues(t, v1.ContainerState_CONTAINER_EXITED, cri.ContainerExited)
	assert.EqualValues(t, v1.ContainerState_CONTAINER_UNKNOWN, cri.ContainerUnknown)
	assert.EqualValues(t, v1.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, cri.PropagationHostToContainer)
	assert.EqualValues(t, v1.MountPropagation_PROPAGATION_BIDIRECTIONAL, cri.PropagationBidirectional)
	assert.EqualValues(t, v1.Protocol_UDP, cri.UDP)
	assert.EqualValues(t, v1.Protocol_SCTP, cri.SCTP)
	assert.EqualValues(t, v1.NamespaceMode_CONTAINER, cri.NamespaceContainer)
	assert.EqualValues(t, v1.NamespaceMode_NODE, cri.NamespaceNode)
	assert.EqualValues(t, v1.NamespaceMode_TARGET, cri.NamespaceTarget)
	assert.EqualValues(t, v1.SupplementalGroupsPolicy_Strict, cri.GroupsStrict)
	assert.EqualValues(t, v1.SecurityProfile_Unconfined, cri.ProfileUnconfined)
	assert.EqualValues(t, v1.SecurityProfile_Localhost, cri.ProfileLocalhost)
	assert.EqualValues(t, v1.ContainerEventType_CONTAINER_STARTED_EVENT, cri.EventStarted)
	assert.EqualValues(t, v1.ContainerEventType_CONTAINER_STOPPED_EVENT, cri.EventStopped)
	assert.EqualValues(t, v1.ContainerEventType_CONTAINER_DELETED_EVENT, cri.EventDeleted)
	assert.EqualValues(t, v1.CgroupDriver_CGROUPFS, cri.CgroupDriverCgroupfs)
}

// A number of a later protocol version must not become a known value.
func TestUnknownEnumNumbersStayUnknown(t *testing.T) {
	for _, n := range []int32{-1, 9, 255, 256, 1 << 20} {
		ns := cripb.DecodeSandboxStatus(&v1.PodSandboxStatus{
			State: v1.PodSandboxState(n),
			Linux: &v1.LinuxPodSandboxStatus{Namespaces: &v1.Namespace{
				Options: &v1.NamespaceOption{Network: v1.NamespaceMode(n)},
			}},
		})
		assert.Equal(t, cri.SandboxNotReady, ns.State)
		assert.Greater(t, ns.Namespaces.Network, cri.NamespaceTarget)
		assert.Equal(t, cri.ContainerUnknown, cripb.DecodeContainer(&v1.Container{State: v1.ContainerState(n)}).State)
	}
}

func TestUnsetTimesRoundTrip(t *testing.T) {
	for _, ns := range []int64{0, -1, time.Time{}.UnixNano()} {
		c := cripb.DecodeContainerStatus(&v1.ContainerStatus{StartedAt: ns})
		assert.True(t, c.StartedAt.IsZero())
	}
	assert.Zero(t, cripb.EncodeContainerStatus(&cri.Container{}).GetFinishedAt())
	at := time.Unix(12, 34)
	assert.EqualValues(t, 12_000_000_034, cripb.EncodeContainerStatus(&cri.Container{StartedAt: at}).GetStartedAt())
}

func TestSandboxIPsRoundTrip(t *testing.T) {
	for _, ips := range [][]string{nil, {"10.0.0.2"}, {"10.0.0.2", "fd00::2", "fd00::3"}} {
		p := cripb.EncodeSandboxStatus(&cri.Sandbox{IPs: ips})
		assert.Equal(t, ips, cripb.DecodeSandboxStatus(p).IPs)
	}
}

// The kubelet sends an AppArmor profile in two forms, one for older runtimes.
func TestAppArmorIsEncodedInBothForms(t *testing.T) {
	for want, profile := range map[string]cri.SecurityProfile{
		"runtime/default": {Type: cri.ProfileRuntimeDefault},
		"unconfined":      {Type: cri.ProfileUnconfined},
		"localhost/x":     {Type: cri.ProfileLocalhost, LocalhostRef: "x"},
	} {
		c := &cri.ContainerConfig{Security: cri.ContainerSecurity{AppArmor: &profile}}
		p, err := cripb.EncodeContainerConfig(c)
		require.NoError(t, err)
		security := p.GetLinux().GetSecurityContext()
		assert.Equal(t, want, security.GetApparmorProfile()) //nolint:staticcheck // the form in question
		assert.EqualValues(t, profile.Type, security.GetApparmor().GetProfileType())

		security.Apparmor = nil // as sent by an older client
		assert.Equal(t, &profile, cripb.DecodeContainerConfig(p).Security.AppArmor)
	}
}

func TestEventPod(t *testing.T) {
	web := cri.PodIdentity{UID: "u", Name: "web", Namespace: "default"}
	t.Run("containers get the sandbox ID of the event", func(t *testing.T) {
		e := cripb.DecodeEvent(&v1.ContainerEventResponse{
			ContainerId:        "c",
			PodSandboxStatus:   &v1.PodSandboxStatus{Id: "s", Metadata: &v1.PodSandboxMetadata{Uid: "u", Name: "web", Namespace: "default"}},
			ContainersStatuses: []*v1.ContainerStatus{{Id: "c"}},
		})
		assert.Equal(t, web, e.Pod.PodIdentity)
		assert.Equal(t, "s", e.Pod.Containers[0].SandboxID)
		assert.Equal(t, "u", e.Pod.Containers[0].PodUID)
	})
	t.Run("event without a sandbox has the pod of its labels", func(t *testing.T) {
		e := cripb.DecodeEvent(&v1.ContainerEventResponse{ContainersStatuses: []*v1.ContainerStatus{{Labels: map[string]string{
			cri.LabelPodUID: "u", cri.LabelPodName: "web", cri.LabelPodNamespace: "default",
		}}}})
		assert.Equal(t, web, e.Pod.PodIdentity)
		assert.Empty(t, e.Pod.Sandboxes)
	})
	t.Run("of two sandboxes the sandbox of the container is sent", func(t *testing.T) {
		p := cripb.EncodeEvent(&cri.Event{ID: "c", Pod: cri.Pod{
			Sandboxes:  []cri.Sandbox{{ID: "old"}, {ID: "new"}},
			Containers: []cri.Container{{ID: "c", SandboxID: "new"}},
		}})
		assert.Equal(t, "new", p.GetPodSandboxStatus().GetId())
	})
	t.Run("event without a sandbox keeps the pod identity", func(t *testing.T) {
		e := cripb.DecodeEvent(cripb.EncodeEvent(&cri.Event{ID: "s", Pod: cri.Pod{PodIdentity: web}}))
		assert.Equal(t, web, e.Pod.PodIdentity)
		assert.Empty(t, e.Pod.Sandboxes)
	})
}

// Every decoded part of a message survives another encoding and decoding.
func FuzzRoundTrip(f *testing.F) {
	for _, m := range testedMessages() {
		raw, err := proto.Marshal(m.base)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		requireStable(t, raw, &v1.PodSandboxConfig{}, func(p *v1.PodSandboxConfig) *cri.SandboxConfig {
			return cripb.DecodeSandboxConfig(p, "")
		}, cripb.EncodeSandboxConfig)
		requireStable(t, raw, &v1.ContainerConfig{}, cripb.DecodeContainerConfig, func(c *cri.ContainerConfig) *v1.ContainerConfig {
			p, err := cripb.EncodeContainerConfig(c)
			require.NoError(t, err)
			return p
		})
		requireStable(t, raw, &v1.ContainerStatus{}, cripb.DecodeContainerStatus, encodeValue(cripb.EncodeContainerStatus))
		requireStable(t, raw, &v1.PodSandboxStatus{}, cripb.DecodeSandboxStatus, encodeValue(cripb.EncodeSandboxStatus))
		requireStable(t, raw, &v1.PodSandboxStats{}, cripb.DecodeSandboxStats, encodeValue(cripb.EncodeSandboxStats))
		requireStable(t, raw, &v1.Image{}, cripb.DecodeImage, encodeValue(cripb.EncodeImage))
		requireStable(t, raw, &v1.ContainerEventResponse{}, cripb.DecodeEvent, encodeValue(cripb.EncodeEvent))
	})
}

func encodeValue[P proto.Message, S any](encode func(*S) P) func(S) P {
	return func(s S) P { return encode(&s) }
}

// requireStable checks that a decoded message is the same after encoding and decoding it over the wire.
func requireStable[P proto.Message, S any](t *testing.T, raw []byte, p P, decode func(P) S, encode func(S) P) {
	t.Helper()
	if proto.Unmarshal(raw, p) != nil {
		return
	}
	once := decode(p)
	wire, err := proto.Marshal(encode(once))
	require.NoError(t, err)
	again := p.ProtoReflect().New().Interface().(P)
	require.NoError(t, proto.Unmarshal(wire, again))
	if diff := cmp.Diff(once, decode(again), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%T changes on its way (-once +again):\n%s", p, diff)
	}
}
