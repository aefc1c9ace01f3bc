// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/volume"
)

// greeting is a custom plugin: each of its volumes has a file with the label "greeting" of its pod.
type greeting struct{}

var (
	_ volume.Plugin        = greeting{}
	_ volume.Checker       = greeting{}
	_ volume.Refresher     = greeting{}
	_ volume.UsageProvider = greeting{}
	_ volume.DeviceFinder  = greeting{}
)

func (greeting) SetUp(_ context.Context, v volume.Volume) (volume.Mount, error) {
	text, ok := v.Pod.Labels["greeting"]
	if !ok && v.Recovered {
		return volume.Mount{HostPath: v.Dir}, &volume.StaleError{Err: errors.New("the label is missing")}
	}
	if !ok {
		return volume.Mount{}, &volume.FinalError{Err: errors.New("the label is missing")} // no teardown is needed
	}
	if err := os.MkdirAll(v.Dir, 0o750); err != nil {
		return volume.Mount{}, err
	}
	return volume.Mount{HostPath: v.Dir}, os.WriteFile(filepath.Join(v.Dir, "greeting"), []byte(text), 0o600)
}

func (greeting) TearDown(_ context.Context, v volume.Volume) error { return os.RemoveAll(v.Dir) }

// FindDevice identifies the volume of a pod that a previous program has left: TearDown needs only its directory.
func (greeting) FindDevice(volume.Volume) (volume.Device, error) { return volume.Device{}, nil }

// Check refuses an invalid volume when its pod is admitted.
func (greeting) Check(_ *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList {
	if v.DownwardAPI.DefaultMode != nil {
		return field.ErrorList{field.Forbidden(path.Child("defaultMode"), "a greeting has mode 0600")}
	}
	return nil
}

// Shows reports true for the metadata of the pod, so that SetUp is called when its labels change.
func (greeting) Shows(pod *corev1.Pod, _ *corev1.Volume, o volume.Object) bool {
	return o.Kind == volume.KindPod && (o.Name == "" || o.Name == pod.Name)
}

func (greeting) Usage(_ context.Context, v volume.Volume) (volume.Usage, error) {
	info, err := os.Stat(filepath.Join(v.Dir, "greeting"))
	if err != nil {
		return volume.Usage{}, err
	}
	return volume.Usage{UsedBytes: uint64(info.Size()), UsedInodes: 1}, nil
}

// A pod waits for its volume until it has the label.
func Example_plugin() {
	root, _ := os.MkdirTemp("", "pods")
	defer os.RemoveAll(root)
	volumes, err := volume.New(volume.Options{Root: root, Plugins: map[string]volume.Plugin{volume.DownwardAPI: greeting{}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = volumes.Run(ctx) }()

	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "web", "u1"
	p.Spec.Volumes = []corev1.Volume{{Name: "hello", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "hello", MountPath: "/hello"}}}}
	p.Labels = map[string]string{"greeting": "good morning"}
	fmt.Println(volumes.Check(p), volumes.Prepare(ctx, p), volumes.WaitError("u1"))
	used, err := volumes.Usage(ctx, "u1", "hello")
	fmt.Println(used.UsedBytes, err, volumes.Release(ctx, "u1"))
	// Output:
	// [] <nil> <nil>
	// 12 <nil> <nil>
}

// disk is a plugin whose volumes are devices, which several pods of the node share.
type disk struct {
	greeting
}

var (
	_ volume.Stager         = disk{}
	_ volume.Expander       = disk{}
	_ volume.SELinuxMounter = disk{}
	_ volume.ObjectWaiter   = disk{}
)

func (disk) Device(_ context.Context, v volume.Volume) (volume.Device, error) {
	return volume.Device{Name: v.PV.Spec.ISCSI.IQN, Dir: filepath.Join("iscsi", v.SpecName), Attachable: true}, nil
}

func (disk) Stage(context.Context, volume.Volume) error   { return nil } // log in, and mount at v.StagingDir
func (disk) Unstage(context.Context, volume.Volume) error { return nil } // unmount, and log out

func (disk) NodeExpand(_ context.Context, v volume.Volume, e volume.Expansion) error {
	fmt.Println("resize the file system of", v.SpecName, "to", e.NewSize)
	return nil
}

func (disk) MountsWithLabel(context.Context, volume.Volume) (bool, error) { return true, nil }

// WaitsFor ends the back-off of failed steps.
func (disk) WaitsFor(o volume.Object) bool {
	switch o.Kind {
	case volume.KindPV, volume.KindClaim, "":
		return true
	}
	return false
}

// A plugin for a volume type that package intree lacks, with periodic updates, on a node with SELinux. The hook receives events.
func ExampleNew() {
	root, _ := os.MkdirTemp("", "pods")
	defer os.RemoveAll(root)
	node, err := volume.ReadSELinux(fstest.MapFS{ // os.DirFS("/")
		"sys/fs/selinux/enforce":                {Data: []byte("1")},
		"proc/self/attr/current":                {Data: []byte("system_u:system_r:kubelet_t:s0")},
		"usr/share/containers/selinux/contexts": {Data: []byte("process = \"x:x:x:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n")},
	})
	fmt.Println(node.FileLabel, err)
	_, err = volume.New(volume.Options{
		Root: root, SELinux: node,
		Plugins: map[string]volume.Plugin{volume.ISCSI: disk{}, volume.FC: disk{}},
		Hooks: volume.Hooks{Event: func(pod *corev1.Pod, _, reason, message string) {
			switch reason {
			case volume.ReasonFailedMount, volume.ReasonFailedMapVolume, volume.ReasonFileSystemResizeFailed:
				fmt.Println("pod", pod.Name, "needs help:", message)
			case volume.ReasonFileSystemResizeSuccessful, volume.ReasonPermissionChange: // only recorded
			}
		}},
	})
	fmt.Println(err)
	// Output:
	// system_u:object_r:container_file_t:s0 <nil>
	// <nil>
}

// The cause of a pod that does not start.
func ExampleError() {
	err := fmt.Errorf("volumes of pod default/web: %w", &volume.Error{Step: volume.StepSetUp, Volume: "data", Err: fs.ErrPermission})
	if failed, ok := errors.AsType[*volume.Error](err); ok {
		fmt.Println(failed.Volume, failed.Step == volume.StepSetUp, failed.Err)
	}
	// Output:
	// data true permission denied
}
