// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/csitest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// requireCall requires that the driver has received want and no other request, and clears the recorded requests.
func (e *env) requireCall(want proto.Message) {
	e.t.Helper()
	calls := e.driver.Calls()
	require.Len(e.t, calls, 1, "%v", e.driver.Methods())
	require.True(e.t, proto.Equal(want, calls[0].Request), "got  %v\nwant %v", calls[0].Request, want)
	e.driver.ClearCalls()
}

func isFinal(err error) bool {
	_, ok := errors.AsType[*volume.FinalError](err)
	return ok
}

// The driver receives the pod info that its CSIDriver object asks for, and nothing remains in the end.
func TestInlineVolumePublishedAndRemoved(t *testing.T) {
	tokens := volume.TokenIssuerFunc(func(_ context.Context, r volume.TokenRequest) (volume.Token, error) {
		return volume.Token{Value: "token for " + r.Audience + " of " + r.ServiceAccount, Expires: time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC)}, nil
	})
	yes := true
	c := driverObject(func(s *storagev1.CSIDriverSpec) {
		s.PodInfoOnMount, s.RequiresRepublish = &yes, &yes
		s.TokenRequests = []storagev1.TokenRequest{{}, {Audience: "vault"}}
	})
	c.secrets = map[string]*corev1.Secret{"shop/key": {Data: map[string][]byte{"password": []byte("hunter2")}}}
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{Drivers: c, Secrets: c, Tokens: tokens})
	v := e.newInlineVolume(map[string]string{"size": "1"})
	fsType := "ext4"
	v.Source.CSI.FSType, v.Source.CSI.NodePublishSecretRef = &fsType, &corev1.LocalObjectReference{Name: "key"}

	m, err := e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	at := filepath.Join(v.Dir, "mount")
	require.Equal(t, volume.Mount{HostPath: at, UpdatePeriodically: true}, m)
	handle := readVolData(t, v.Dir)["volumeHandle"]
	require.Equal(t, "csi-d6e418cffb6079f9b02d83af7dffbf3511ed5a26b3f106f1f3ca764ed6505c9c", handle)
	require.Equal(t, map[string]string{
		"specVolID": "data", "volumeHandle": handle, "driverName": "csi.example", "nodeName": "n1", "volumeLifecycleMode": "Ephemeral",
		"attachmentID": readVolData(t, v.Dir)["attachmentID"],
	}, readVolData(t, v.Dir))
	want := &spec.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: at, Secrets: map[string]string{"password": "hunter2"},
		VolumeContext: map[string]string{
			"size": "1", "csi.storage.k8s.io/pod.name": "web", "csi.storage.k8s.io/pod.namespace": "shop", "csi.storage.k8s.io/pod.uid": "uid-1",
			"csi.storage.k8s.io/serviceAccount.name": "app", "csi.storage.k8s.io/ephemeral": "true",
			"csi.storage.k8s.io/serviceAccount.tokens": `{"":{"token":"token for  of app","expirationTimestamp":"2126-01-02T03:04:05Z"},` +
				`"vault":{"token":"token for vault of app","expirationTimestamp":"2126-01-02T03:04:05Z"}}`,
		},
		VolumeCapability: &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: "ext4", VolumeMountGroup: "4321"}},
		},
	}
	e.requireCall(want)
	require.Equal(t, map[string]string{"size": "1"}, v.Source.CSI.VolumeAttributes, "the pod spec is not modified")

	// Now the driver gets the tokens as secrets.
	c.drivers["csi.example"].Spec.ServiceAccountTokenInSecrets = &yes
	v.Update = true
	_, err = e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	key := "csi.storage.k8s.io/serviceAccount.tokens"
	want.Secrets[key] = want.VolumeContext[key]
	delete(want.VolumeContext, key)
	e.requireCall(want)

	require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
	e.requireCall(&spec.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: at})
	require.Equal(t, []string{"pods/uid-1/volumes/kubernetes.io~csi/"}, e.listFiles())
	require.Empty(t, e.driver.Volumes())
	require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
	require.Empty(t, e.driver.Methods(), "a second teardown makes no call")
}

// The volume is published for two pods, and removed by its record alone.
func TestPVStagedPublishedExpandedAndRemovedByRecord(t *testing.T) {
	c := &cluster{secrets: map[string]*corev1.Secret{}}
	for _, name := range []string{"stage", "publish", "expand"} {
		c.secrets["infra/"+name] = &corev1.Secret{Data: map[string][]byte{"for": []byte(name)}}
	}
	health := &spec.VolumeHealth{HealthStatuses: []*spec.VolumeHealth_VolumeHealthEntry{{Status: spec.VolumeHealthErrorType_DEGRADED, Reason: "Slow", Message: "one disk is gone"}}}
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities(), Health: health}, csi.Options{Secrets: c})
	v := e.newPersistentVolume(false)
	pv := v.PV.Spec.CSI
	pv.NodeStageSecretRef = &corev1.SecretReference{Namespace: "infra", Name: "stage"}
	pv.NodePublishSecretRef = &corev1.SecretReference{Namespace: "infra", Name: "publish"}
	pv.NodeExpandSecretRef = &corev1.SecretReference{Namespace: "infra", Name: "expand"}
	require.Equal(t, volume.Device{
		Name: "csi.example^handle1", Data: map[string]string{"driverName": "csi.example", "volumeHandle": "handle1"},
		Dir: "kubernetes.io/csi/csi.example/92c3f3c5c7ae9947e9af76eecae516caf446ef3d8afe703bd91b20e90567952b/globalmount",
	}, v.Device)

	require.NoError(t, e.plugin.Stage(t.Context(), v))
	capability := func(group string) *spec.VolumeCapability {
		return &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: "ext4", MountFlags: []string{"noatime"}, VolumeMountGroup: group}},
		}
	}
	secret := func(of string) map[string]string { return map[string]string{"for": of} }
	e.requireCall(&spec.NodeStageVolumeRequest{
		VolumeId: "handle1", StagingTargetPath: v.StagingDir, Secrets: secret("stage"), VolumeContext: map[string]string{"size": "1"}, VolumeCapability: capability("4321"),
	})
	require.Equal(t, map[string]string{"volumeHandle": "handle1", "driverName": "csi.example"}, readVolData(t, filepath.Dir(v.StagingDir)))

	v.ReadOnly = true
	m, err := e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	at := filepath.Join(v.Dir, "mount")
	require.Equal(t, volume.Mount{HostPath: at, ReadOnly: true}, m)
	e.requireCall(&spec.NodePublishVolumeRequest{
		VolumeId: "handle1", StagingTargetPath: v.StagingDir, TargetPath: at, Readonly: true, Secrets: secret("publish"),
		VolumeContext: map[string]string{"size": "1"}, VolumeCapability: capability("4321"),
	})
	require.Equal(t, "Persistent", readVolData(t, v.Dir)["volumeLifecycleMode"])

	require.NoError(t, e.plugin.NodeExpand(t.Context(), v, volume.Expansion{OldSize: 1, NewSize: 2 << 30}))
	e.requireCall(&spec.NodeExpandVolumeRequest{
		VolumeId: "handle1", VolumePath: at, StagingTargetPath: v.StagingDir, Secrets: secret("expand"), VolumeCapability: capability(""),
		CapacityRange: &spec.CapacityRange{RequiredBytes: 2 << 30},
	})

	u, err := e.plugin.Usage(t.Context(), asRecorded(v))
	require.NoError(t, err)
	require.Equal(t, volume.Usage{
		UsedBytes: 100_000, CapacityBytes: 1_000_000, AvailableBytes: 900_000, UsedInodes: 1, Inodes: 100, FreeInodes: 99, Abnormal: "Degraded Slow: one disk is gone",
	}, u)
	e.driver.ClearCalls()

	require.ErrorContains(t, e.plugin.Unstage(t.Context(), asRecorded(v)), "the volume is published")
	e.driver.ClearCalls()
	require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
	e.requireCall(&spec.NodeUnpublishVolumeRequest{VolumeId: "handle1", TargetPath: at})
	require.NoError(t, e.plugin.Unstage(t.Context(), asRecorded(v)))
	e.requireCall(&spec.NodeUnstageVolumeRequest{VolumeId: "handle1", StagingTargetPath: v.StagingDir})
	require.NoError(t, e.plugin.Unstage(t.Context(), asRecorded(v)))
	require.Empty(t, e.driver.Methods(), "a second Unstage makes no call")
	require.Equal(t, []string{"pods/uid-1/volumes/kubernetes.io~csi/", "plugins/kubernetes.io/csi/"}, e.listFiles())
}

func TestBlockVolumeStagedAndPublished(t *testing.T) {
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{})
	v := e.newPersistentVolume(true)
	home := filepath.Join(v.PluginDir, "kubernetes.io/csi/volumeDevices")
	require.Equal(t, filepath.Join(home, "staging/pv1"), v.StagingDir)
	require.Equal(t, "kubernetes.io/csi/volumeDevices/pv1/dev", v.Device.MapDir)
	require.NoError(t, e.plugin.Stage(t.Context(), v))
	capability := &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}},
	}
	e.requireCall(&spec.NodeStageVolumeRequest{VolumeId: "handle1", StagingTargetPath: v.StagingDir, VolumeContext: map[string]string{"size": "1"}, VolumeCapability: capability})
	kept := readVolData(t, filepath.Join(home, "pv1/data"))
	require.Equal(t, map[string]string{
		"specVolID": "pv1", "volumeHandle": "handle1", "driverName": "csi.example", "nodeName": "n1",
		"attachmentID": "csi-8cbaf06d7a4e36b1715f23f3058c27d7bcd65c9ebc8d358f04acd03173daa0b2",
	}, kept)

	m, err := e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	at := filepath.Join(home, "publish/pv1/uid-1")
	require.Equal(t, at, m.HostPath)
	e.requireCall(&spec.NodePublishVolumeRequest{
		VolumeId: "handle1", StagingTargetPath: v.StagingDir, TargetPath: at, VolumeContext: map[string]string{"size": "1"}, VolumeCapability: capability,
	})
	r := asRecorded(v)
	r.Device.Data = nil // like a volume of the kubelet, which has no record
	require.NoError(t, e.plugin.TearDown(t.Context(), r))
	e.requireCall(&spec.NodeUnpublishVolumeRequest{VolumeId: "handle1", TargetPath: at})
	require.NoError(t, e.plugin.Unstage(t.Context(), r))
	e.requireCall(&spec.NodeUnstageVolumeRequest{VolumeId: "handle1", StagingTargetPath: v.StagingDir})
	for _, left := range e.listFiles() {
		require.NotContains(t, left, "pv1", "left behind")
	}
}

// No directory is created for the driver in the directory of plugins.
func TestDriverWithoutStagingNotCalledToStage(t *testing.T) {
	e := newEnv(t, csitest.Options{}, csi.Options{})
	v := e.newPersistentVolume(false)
	require.NoError(t, e.plugin.Stage(t.Context(), v))
	require.Empty(t, e.driver.Methods())
	_, err := e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	request := e.driver.Calls()[0].Request.(*spec.NodePublishVolumeRequest)
	require.Empty(t, request.GetStagingTargetPath())
	require.Equal(t, spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, request.GetVolumeCapability().GetAccessMode().GetMode())
	e.driver.ClearCalls()
	require.NoError(t, e.plugin.NodeExpand(t.Context(), v, volume.Expansion{NewSize: 2}), "a driver without the capability is not called to expand")
	_, err = e.plugin.Usage(t.Context(), v)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Empty(t, e.driver.Methods())
	require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
	e.driver.ClearCalls()
	require.NoError(t, e.plugin.Unstage(t.Context(), asRecorded(v)))
	require.Empty(t, e.driver.Methods())
}

// After any other error, the data that a teardown needs is kept.
func TestOnlyFinalErrorsLeaveNothing(t *testing.T) {
	final := map[codes.Code]bool{
		codes.Canceled: false, codes.Unknown: true, codes.InvalidArgument: true, codes.DeadlineExceeded: false, codes.NotFound: true,
		codes.AlreadyExists: true, codes.PermissionDenied: true, codes.ResourceExhausted: false, codes.FailedPrecondition: true,
		codes.Aborted: false, codes.OutOfRange: true, codes.Unimplemented: true, codes.Internal: true, codes.Unavailable: false,
		codes.DataLoss: true, codes.Unauthenticated: true,
	}
	var code atomic.Uint32
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities(), BeforeCall: func(_ context.Context, c csitest.Call) error {
		if strings.Contains(c.Method, "Stage") || strings.Contains(c.Method, "Publish") {
			return status.Error(codes.Code(code.Load()), "as told")
		}
		return nil
	}}, csi.Options{})
	for _, block := range []bool{false, true} {
		code.Store(0)
		v := e.newPersistentVolume(block)
		require.NoError(t, e.plugin.Stage(t.Context(), v)) // creates the directories that all volumes share
		_, err := e.plugin.SetUp(t.Context(), v)
		require.NoError(t, err)
		require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
		require.NoError(t, e.plugin.Unstage(t.Context(), asRecorded(v)))
		for c, want := range final {
			code.Store(uint32(c))
			for name, do := range map[string]func(v volume.Volume) error{
				"stage":   func(v volume.Volume) error { return e.plugin.Stage(t.Context(), v) },
				"publish": func(v volume.Volume) error { _, err := e.plugin.SetUp(t.Context(), v); return err },
			} {
				before := e.listFiles()
				err := do(v)
				require.ErrorContains(t, err, "as told")
				assert.Equal(t, want, isFinal(err), "%s %v", name, c)
				if want {
					assert.Equal(t, before, e.listFiles(), "%s %v", name, c)
				} else {
					assert.NotEqual(t, before, e.listFiles(), "%s %v", name, c)
				}
				again := v
				again.Recovered = true
				left := e.listFiles()
				err = do(again)
				assert.False(t, isFinal(err), "an error for a recovered volume is never final: %s %v", name, c)
				for _, path := range left {
					if filepath.Base(path) == "vol_data.json" {
						assert.FileExists(t, filepath.Join(e.root, path))
					}
				}
				code.Store(0)
				require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
				require.NoError(t, e.plugin.Unstage(t.Context(), asRecorded(v)))
				code.Store(uint32(c))
			}
		}
	}
}

// The error names the missing object.
func TestErrorBeforeFirstCallIsFinal(t *testing.T) {
	c := driverObject(func(s *storagev1.CSIDriverSpec) {
		s.VolumeLifecycleModes = nil
		s.TokenRequests = []storagev1.TokenRequest{{}}
	})
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{Drivers: c, Secrets: c, Attachments: c})
	fails := func(v volume.Volume, want string) {
		t.Helper()
		_, err := e.plugin.SetUp(t.Context(), v)
		require.ErrorContains(t, err, want)
		require.True(t, isFinal(err), "%v", err)
	}
	fails(e.newInlineVolume(nil), `volume mode "Ephemeral" not supported by driver csi.example (only supports ["Persistent"])`)
	v := e.newPersistentVolume(false)
	require.True(t, v.Device.Attachable)
	fails(v, "volume attachment csi-")
	no := false
	c.drivers["csi.example"].Spec.AttachRequired = &no
	fails(v, "driver needs service account tokens: csi.Options.Tokens is nil")
	v.PV.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Namespace: "infra", Name: "none"}
	fails(v, "nodePublishSecretRef infra/none: infra/none: file does not exist")
	v.PV.Spec.CSI.Driver = "other.example"
	fails(v, "driver name other.example not found in the list of registered CSI drivers")
	v.PV.Spec.CSI.Driver = "../../x"
	fails(v, `driver name "../../x" is invalid`)
	v.PV.Spec.CSI.Driver, v.PV.Spec.CSI.VolumeHandle = "csi.example", ""
	fails(v, "the volume handle is empty")
	delete(c.drivers, "csi.example")
	fails(e.newInlineVolume(nil), "no CSIDriver object")
	require.Empty(t, e.driver.Methods())
	require.NoDirExists(t, v.Dir)
	require.NoDirExists(t, e.newInlineVolume(nil).Dir)
}

func TestErrorsContainNoSecretsAndAreCut(t *testing.T) {
	c := driverObject(nil)
	c.secrets = map[string]*corev1.Secret{"shop/key": {Data: map[string][]byte{"password": []byte("hunter2"), "short": []byte("x")}}}
	e := newEnv(t, csitest.Options{BeforeCall: func(_ context.Context, call csitest.Call) error {
		if call.Method == "NodePublishVolume" {
			return status.Error(codes.Internal, "wrong password hunter2 "+strings.Repeat("long ", 10_000))
		}
		return nil
	}}, csi.Options{Drivers: c, Secrets: c})
	v := e.newInlineVolume(nil)
	v.Source.CSI.NodePublishSecretRef = &corev1.LocalObjectReference{Name: "key"}
	_, err := e.plugin.SetUp(t.Context(), v)
	require.ErrorContains(t, err, "NodePublishVolume of CSI driver csi.example: rpc error: code = Internal desc = wrong password [secret] long")
	require.NotContains(t, err.Error(), "hunter2")
	require.Less(t, len(err.Error()), 1200)
	call, ok := errors.AsType[*csi.CallError](err)
	require.True(t, ok)
	require.True(t, csi.CallIsFinal(call))
}

// scriptedDriver is a driver whose responses a test changes while it runs.
type scriptedDriver struct {
	mu    sync.Mutex // guards the fields below
	fault func(ctx context.Context, c csitest.Call) error
	done  func(err error) error
}

func (m *scriptedDriver) setHandlers(fault func(ctx context.Context, c csitest.Call) error, done func(err error) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault, m.done = fault, done
}

// options returns options of a driver whose publish and unpublish calls are handled by the functions that m has at that time.
func (m *scriptedDriver) options() csitest.Options {
	return csitest.Options{
		Capabilities: csitest.AllCapabilities(),
		BeforeCall: func(ctx context.Context, c csitest.Call) error {
			m.mu.Lock()
			fault := m.fault
			m.mu.Unlock()
			if fault == nil || !strings.HasPrefix(c.Method, "NodeP") && !strings.HasPrefix(c.Method, "NodeUnp") {
				return nil
			}
			return fault(ctx, c)
		},
		AfterCall: func(_ csitest.Call, err error) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.done == nil {
				return err
			}
			return m.done(err)
		},
	}
}

// A hanging call ends at the timeout.
func TestCallsRepeatedAfterHangCrashOrWrongResponse(t *testing.T) {
	m := &scriptedDriver{}
	e := newEnv(t, m.options(), csi.Options{Drivers: driverObject(nil), Timeout: 5 * time.Second}) // long enough for the driver on a busy machine
	v := e.newInlineVolume(nil)

	m.setHandlers(csitest.Hang, nil)
	begun := time.Now()
	_, err := e.plugin.SetUp(t.Context(), v)
	require.Error(t, err)
	require.False(t, isFinal(err))
	require.Less(t, time.Since(begun), time.Minute)
	require.FileExists(t, filepath.Join(v.Dir, "vol_data.json"))
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = e.plugin.TearDown(short, asRecorded(v))
	require.Error(t, err)
	require.FileExists(t, filepath.Join(v.Dir, "vol_data.json"), "the data is kept: the volume may still be published")

	entered := make(chan struct{}, 10)
	m.setHandlers(func(ctx context.Context, c csitest.Call) error { entered <- struct{}{}; return csitest.Hang(ctx, c) }, nil)
	stopped := make(chan struct{})
	go func() { defer close(stopped); <-entered; e.driver.Stop() }()
	_, err = e.plugin.SetUp(t.Context(), v)
	require.Error(t, err)
	require.False(t, isFinal(err), "%v", err)
	<-stopped
	require.Eventually(t, func() bool { return len(e.plugin.Drivers()) == 0 }, timeout, time.Millisecond)
	_, err = e.plugin.SetUp(t.Context(), v)
	require.ErrorContains(t, err, "not found in the list of registered CSI drivers")
	require.ErrorContains(t, e.plugin.TearDown(t.Context(), asRecorded(v)), "not found in the list")
	m.setHandlers(nil, nil)
	told := len(e.driver.RegistrationResults())
	e.driver.Restart()
	require.Eventually(t, func() bool { return slices.Contains(e.driver.RegistrationResults()[told:], "registered") }, timeout, time.Millisecond)

	m.setHandlers(nil, func(error) error { return status.Error(codes.Unavailable, "no answer") })
	_, err = e.plugin.SetUp(t.Context(), v)
	require.ErrorContains(t, err, "NodeGetCapabilities")
	require.False(t, isFinal(err), "not final: an earlier call may have published the volume")
	calls := 0 // guarded by m.mu
	m.setHandlers(nil, func(err error) error {
		if calls++; calls == 1 {
			return err // NodeGetCapabilities
		}
		return status.Error(codes.Unavailable, "no answer")
	})
	_, err = e.plugin.SetUp(t.Context(), v)
	require.ErrorContains(t, err, "NodePublishVolume")
	require.False(t, isFinal(err))
	m.setHandlers(nil, nil)
	require.Len(t, e.driver.Volumes(), 1)
	_, err = e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	require.Len(t, e.driver.Volumes(), 1)
	require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
	require.Empty(t, e.driver.Volumes())
}

func TestFailedRepublishKeepsVolume(t *testing.T) {
	var fail atomic.Bool
	e := newEnv(t, csitest.Options{BeforeCall: func(_ context.Context, c csitest.Call) error {
		if fail.Load() && c.Method == "NodePublishVolume" {
			return status.Error(codes.PermissionDenied, "the token has expired")
		}
		return nil
	}}, csi.Options{Drivers: driverObject(nil)})
	v := e.newInlineVolume(nil)
	_, err := e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	before := e.listFiles()
	fail.Store(true)
	for _, again := range []volume.Volume{v, v} {
		again.Update = true
		_, err = e.plugin.SetUp(t.Context(), again)
		require.ErrorContains(t, err, "the token has expired")
		require.False(t, isFinal(err))
		require.Equal(t, before, e.listFiles())
	}
}

// The driver is known from the PV, the pod or the record.
func TestTearDownWithDamagedVolData(t *testing.T) {
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{Drivers: driverObject(nil)})
	for name, text := range map[string]string{
		"empty": "", "no JSON": "{", "no object": "[]", "no driver": `{"volumeHandle":"x"}`, "path": `{"driverName":"../x","volumeHandle":"x"}`,
		"huge": `{"driverName":"csi.example","volumeHandle":"` + strings.Repeat("x", 100_000) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			v := e.newInlineVolume(nil)
			require.NoError(t, os.MkdirAll(filepath.Join(v.Dir, "mount"), 0o750))
			require.NoError(t, os.WriteFile(filepath.Join(v.Dir, "vol_data.json"), []byte(text), 0o600))
			require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)), "nothing is mounted")
			require.NoDirExists(t, v.Dir)

			d := e.newPersistentVolume(false)
			require.NoError(t, e.plugin.Stage(t.Context(), d))
			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(d.StagingDir), "vol_data.json"), []byte(text), 0o600))
			e.driver.ClearCalls()
			require.NoError(t, e.plugin.Unstage(t.Context(), asRecorded(d)), "the driver is known from the record")
			require.Equal(t, []string{"NodeUnstageVolume"}, e.driver.Methods())
			require.Empty(t, e.driver.Volumes())
		})
	}
	v := e.newInlineVolume(nil)
	require.NoError(t, os.MkdirAll(v.Dir, 0o750))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(v.Dir, "vol_data.json")))
	require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
	require.FileExists(t, "/etc/passwd")
}
