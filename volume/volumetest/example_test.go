// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// The suite for a plugin, here that of emptyDir.
func TestPluginPassesSuite(t *testing.T) {
	volumetest.TestPlugin(t, func(*testing.T) volumetest.Subject {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "default", "web", "u1"
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		return volumetest.Subject{Plugin: intree.Plugins(intree.Options{})[volume.EmptyDir], Name: volume.EmptyDir, Pod: pod}
	})
}

// A plugin that is slow, and fails once.
func ExampleFaultyPlugin() {
	memory, failed := &volumetest.MemoryPlugin{}, false
	plugin := &volumetest.FaultyPlugin{
		Plugin: memory,
		SetUpFault: func(context.Context, volume.Volume) error {
			if failed {
				return nil
			}
			failed = true
			return errors.New("no route to host")
		},
		TearDownFault: volumetest.Latency(time.Millisecond), // or volumetest.Hang
		UnstageFault:  volumetest.Hang,
	}
	ctx, v := context.Background(), volume.Volume{UID: "u1", Name: "data"}
	for range 2 {
		_, err := plugin.SetUp(ctx, v)
		fmt.Println(err)
	}
	fmt.Println(memory.Volumes(), plugin.TearDown(ctx, v), memory.Calls())
	// Output:
	// no route to host
	// <nil>
	// [u1/data] <nil> [set up u1/data tear down u1/data]
}

// A claim whose volume is staged, while its server is unavailable at times.
func ExampleClaims() {
	var claims volumetest.Claims
	pv := &corev1.PersistentVolume{}
	pv.Name = "pv1"
	claims.Bind("default", "data", pv)
	ctx := context.Background()
	pvc, err := claims.PersistentVolumeClaim(ctx, "default", "data")
	fmt.Println(pvc.Spec.VolumeName, err)
	claims.FailCalls(errors.New("no route to host"))
	_, err = claims.PersistentVolume(ctx, "pv1")
	fmt.Println(err)

	plugin := &volumetest.MemoryStager{}
	v := volume.Volume{UID: "u1", Name: "data", PV: pv}
	v.Device, err = plugin.Device(ctx, v)
	fmt.Println(err, plugin.Stage(ctx, v), plugin.Staged(), plugin.Violations())
	// Output:
	// pv1 <nil>
	// no route to host
	// <nil> <nil> [pv1] []
}
