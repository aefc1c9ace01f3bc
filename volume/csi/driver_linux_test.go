// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/csitest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// recordingUpdater records the drivers that it is called with, and fails a given number of times.
type recordingUpdater struct {
	fail      int
	installed []csi.NodeInfo
	removed   []string
}

func (n *recordingUpdater) InstallDriver(_ context.Context, i csi.NodeInfo) error {
	n.installed = append(n.installed, i)
	if n.fail > 0 {
		n.fail--
		return errors.New("no API server")
	}
	return nil
}

func (n *recordingUpdater) UninstallDriver(_ context.Context, driver string) error {
	n.removed = append(n.removed, driver)
	return nil
}

// Four errors in a row fail the registration of the driver.
func TestNodeInfoPassedToNodeUpdaterWithRetries(t *testing.T) {
	info := &spec.NodeGetInfoResponse{
		NodeId: "id-7", MaxVolumesPerNode: 5, AccessibleTopology: &spec.Topology{Segments: map[string]string{"zone": "a"}},
	}
	n := &recordingUpdater{fail: 3}
	e := newEnv(t, csitest.Options{NodeInfo: info}, csi.Options{NodeUpdater: n})
	e.driver.Stop()
	require.Eventually(t, func() bool { return len(e.plugin.Drivers()) == 0 }, timeout, time.Millisecond)
	e.stop()
	want := csi.NodeInfo{Driver: "csi.example", NodeID: "id-7", MaxVolumes: 5, Topology: map[string]string{"zone": "a"}}
	require.Equal(t, []csi.NodeInfo{want, want, want, want}, n.installed)
	require.Equal(t, []string{"csi.example"}, n.removed)

	registry := t.TempDir()
	n = &recordingUpdater{fail: 1000}
	p, err := csi.New(csi.Options{Registry: registry, NodeUpdater: n})
	require.NoError(t, err)
	d := csitest.Start(t, csitest.Options{Registry: registry})
	runPlugin(t, p)
	require.Eventually(t, func() bool { return len(d.RegistrationResults()) > 0 }, timeout, time.Millisecond)
	require.Contains(t, d.RegistrationResults()[0], "register plugin csi.example at socket "+d.RegistrationSocket()+": CSI driver csi.example: write to the Node: no API server")
	require.Empty(t, p.Drivers())
}

func runPlugin(t *testing.T, p *csi.Plugin) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
}

// The result depends on the supported versions, and on a registered driver of this name.
func TestRegistrationByVersion(t *testing.T) {
	for name, c := range map[string]struct {
		versions []string
		refused  string
	}{
		"one":         {[]string{"1.0.0"}, ""},
		"the highest": {[]string{"0.3.0", "1.2.0", "2.0.0", "x"}, ""},
		"none":        {[]string{}, "driver supports no version"},
		"too old":     {[]string{"0.3.0"}, "versions"},
		"too new":     {[]string{"2.0.0"}, "versions"},
		"no version":  {[]string{"latest"}, "versions"},
	} {
		t.Run(name, func(t *testing.T) {
			registry := t.TempDir()
			p, err := csi.New(csi.Options{Registry: registry})
			require.NoError(t, err)
			d := csitest.Start(t, csitest.Options{Registry: registry, Versions: c.versions})
			runPlugin(t, p)
			require.Eventually(t, func() bool { return len(d.RegistrationResults()) > 0 }, timeout, time.Millisecond)
			if c.refused == "" {
				require.Equal(t, "registered", d.RegistrationResults()[0])
			} else {
				require.Contains(t, d.RegistrationResults()[0], c.refused)
			}
		})
	}
}

// Removing the socket of the old driver does not deregister the new one.
func TestOnlyHigherVersionReplacesDriver(t *testing.T) {
	e := newEnv(t, csitest.Options{Versions: []string{"1.1.0"}}, csi.Options{})
	registry := filepath.Dir(e.driver.RegistrationSocket())
	sub := filepath.Join(registry, "sub")
	require.NoError(t, os.Mkdir(sub, 0o750))
	same := csitest.Start(t, csitest.Options{Registry: sub, Versions: []string{"1.1.0"}})
	require.Eventually(t, func() bool { return len(same.RegistrationResults()) > 0 }, timeout, time.Millisecond)
	require.Contains(t, same.RegistrationResults()[0], "is registered already, with version 1.1.0")
	same.Stop()
	other := filepath.Join(registry, "other") // a directory that is not read again for the refused driver
	require.NoError(t, os.Mkdir(other, 0o750))
	next := csitest.Start(t, csitest.Options{Registry: other, Versions: []string{"1.2.0"}})
	require.Eventually(t, func() bool { return slices.Contains(next.RegistrationResults(), "registered") }, timeout, time.Millisecond)
	e.driver.Stop()
	v := e.newPersistentVolume(false)
	require.Never(t, func() bool { return len(e.plugin.Drivers()) == 0 }, 500*time.Millisecond, 10*time.Millisecond)
	_, err := e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	require.Equal(t, []string{"NodeGetInfo", "NodePublishVolume"}, next.Methods())
}

// If the old driver is deregistered during a failed registration, no driver remains.
func TestFailedSuccessorLeavesDriverRegistered(t *testing.T) {
	n := &recordingUpdater{}
	e := newEnv(t, csitest.Options{Versions: []string{"1.1.0"}}, csi.Options{NodeUpdater: n})
	sub := filepath.Join(filepath.Dir(e.driver.RegistrationSocket()), "sub")
	require.NoError(t, os.Mkdir(sub, 0o750))
	asked, answer := make(chan bool, 100), make(chan error, 100)
	next := csitest.Start(t, csitest.Options{Registry: sub, Versions: []string{"1.2.0"}, BeforeCall: func(context.Context, csitest.Call) error {
		asked <- true
		return <-answer
	}})
	<-asked
	answer <- errors.New("no node")
	require.Eventually(t, func() bool { return len(next.RegistrationResults()) > 0 }, timeout, time.Millisecond)
	require.Contains(t, next.RegistrationResults()[0], "no node")
	require.Equal(t, []string{"csi.example"}, e.plugin.Drivers())
	_, err := e.plugin.SetUp(t.Context(), e.newPersistentVolume(false))
	require.NoError(t, err)
	require.Equal(t, []string{"NodePublishVolume"}, e.driver.Methods())
	require.Empty(t, n.removed)

	<-asked // the registration is retried
	e.driver.Stop()
	time.Sleep(time.Second) // until the plugin has detected the removed socket
	answer <- errors.New("no node")
	require.Eventually(t, func() bool { return len(next.RegistrationResults()) > 1 }, timeout, time.Millisecond)
	require.Eventually(t, func() bool { return len(e.plugin.Drivers()) == 0 }, timeout, time.Millisecond)
	e.stop()
	require.Equal(t, []string{"csi.example"}, n.removed)
	close(answer)
}

func TestWatchReportsRegisteredDriver(t *testing.T) {
	e := newEnv(t, csitest.Options{}, csi.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan string, 10), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		ended <- e.plugin.Watch(ctx, func(kind, namespace, name string) { heard <- kind + " " + namespace + " " + name })
	}()
	<-begun
	for {
		e.driver.Stop()
		require.Eventually(t, func() bool { return len(e.plugin.Drivers()) == 0 }, timeout, time.Millisecond)
		e.driver.Restart()
		require.Eventually(t, func() bool { return len(e.plugin.Drivers()) == 1 }, timeout, time.Millisecond)
		select {
		case got := <-heard:
			require.Equal(t, "CSIDriver  csi.example", got)
			cancel()
			require.NoError(t, <-ended)
			return
		case <-time.After(time.Second): // Watch may have started after the registration
		}
	}
}

func TestWaitForAttachPassesPublishContext(t *testing.T) {
	c := &cluster{attachments: map[string]*storagev1.VolumeAttachment{}}
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{Attachments: c})
	v := e.newPersistentVolume(false)
	require.True(t, v.Device.Attachable)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := e.plugin.WaitForAttach(short, v)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `volume "handle1" is not attached`)

	_, err = e.plugin.SetUp(t.Context(), v)
	require.ErrorContains(t, err, "volume attachment csi-")
	const name = "csi-8cbaf06d7a4e36b1715f23f3058c27d7bcd65c9ebc8d358f04acd03173daa0b2"
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	a.Status.AttachError = &storagev1.VolumeError{Message: "no such disk"}
	c.attachments[name] = a
	_, err = e.plugin.WaitForAttach(t.Context(), v)
	require.ErrorContains(t, err, "volume attachment "+name+": no such disk")
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "vdb"}}
	path, err := e.plugin.WaitForAttach(t.Context(), v)
	require.NoError(t, err)
	require.Equal(t, name, path)
	require.NoError(t, e.plugin.Stage(t.Context(), v))
	_, err = e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	for _, call := range e.driver.Calls() {
		r := call.Request.(interface{ GetPublishContext() map[string]string })
		require.Equal(t, map[string]string{"device": "vdb"}, r.GetPublishContext(), call.Method)
	}
	now := metav1.Now()
	a.DeletionTimestamp = &now
	_, err = e.plugin.WaitForAttach(t.Context(), v)
	require.ErrorContains(t, err, "is being deleted")
}

func TestDeviceRefusesPVNamedLikeBlockDirectory(t *testing.T) {
	e := newEnv(t, csitest.Options{}, csi.Options{})
	for _, name := range []string{"staging", "publish"} {
		v := e.newPersistentVolume(true)
		v.SpecName, v.PV.Name = name, name
		_, err := e.plugin.Device(t.Context(), v)
		require.ErrorContains(t, err, "PV "+name+" cannot be a block volume")
		v.Block = false
		_, err = e.plugin.Device(t.Context(), v)
		require.NoError(t, err, "a file system volume has another directory")
	}
}

func TestWaitsForCSIDriverObjects(t *testing.T) {
	p, err := csi.New(csi.Options{Registry: "/x"})
	require.NoError(t, err)
	for kind, want := range map[string]bool{"CSIDriver": true, volume.KindPV: false, "": true} {
		require.Equal(t, want, p.WaitsFor(volume.Object{Kind: kind}), "kind %q", kind)
	}
}

func TestCheckRefusesInvalidInlineVolumes(t *testing.T) {
	p, err := csi.New(csi.Options{Registry: "/x"})
	require.NoError(t, err)
	v := &corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "../x", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "key"}}}}
	var fields []string
	for _, e := range p.Check(nil, v, field.NewPath("spec", "volumes").Index(0).Child("csi")) {
		fields = append(fields, e.Field)
	}
	require.Equal(t, []string{"spec.volumes[0].csi.driver", "spec.volumes[0].csi", "spec.volumes[0].csi.nodePublishSecretRef"}, fields)
	require.Empty(t, p.Check(nil, &corev1.Volume{}, field.NewPath("x")))
}

func TestNewNamesInvalidField(t *testing.T) {
	for want, o := range map[string]csi.Options{
		"field Registry is empty":         {},
		`field Registry: "x" is no absol`: {Registry: "x"},
		"field Timeout: -1s is negative":  {Registry: "/x", Timeout: -time.Second},
	} {
		_, err := csi.New(o)
		require.ErrorContains(t, err, want)
	}
}
