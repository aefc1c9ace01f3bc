// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/volume"
	kubeconfigmap "k8s.io/kubernetes/pkg/volume/configmap"
	kubedownward "k8s.io/kubernetes/pkg/volume/downwardapi"
	kubesecret "k8s.io/kubernetes/pkg/volume/secret"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/volume/payload"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	nodevolume "github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

// Both sides write the same files for generated config maps, secrets and downwardAPI volumes.
func TestPayload(t *testing.T) { run(t, payloads) }

// Both sides create the same directories for volumes that are mounted below another volume.
func TestNestedMountPoints(t *testing.T) { nested.Run(t, flags.AtMost(3_000)) } // each input creates some directories

// volumeOf has a pod with a volume, and the objects of the volume.
type volumeOf struct {
	Pod         *corev1.Pod
	ConfigMap   *corev1.ConfigMap
	Secret      *corev1.Secret
	Allocatable corev1.ResourceList
}

var payloads = conformance.Comparison[volumeOf, map[string]string]{
	Make:    makeVolume,
	Kubelet: kubeletPayload,
	Ours: func(in volumeOf) map[string]string {
		inputs := payload.Inputs{ConfigMaps: map[string]*corev1.ConfigMap{}, Secrets: map[string]*corev1.Secret{}, Allocatable: in.Allocatable}
		inputs.ConfigMaps["o"], inputs.Secrets["o"] = in.ConfigMap, in.Secret
		files, err := payload.BuildFiles(in.Pod, &in.Pod.Spec.Volumes[0], inputs)
		if err != nil {
			return map[string]string{"": "refused"}
		}
		out := map[string]string{}
		for name, f := range files {
			out[name] = fmt.Sprintf("%o %q", f.Mode, f.Data)
		}
		return out
	},
}

// pickPath returns a file path or an object key. It is already clean: ours cleans paths, the kubelet does not.
func pickPath(c *conformance.Choices) string {
	return conformance.Pick(c, "a", "b", "c/d", "c/e", "f.g", "..x", "../y", "z/..w")
}

func makeVolume(c *conformance.Choices) volumeOf {
	in := volumeOf{Pod: &corev1.Pod{}, ConfigMap: &corev1.ConfigMap{}, Secret: &corev1.Secret{}}
	p := in.Pod
	p.Name, p.Namespace, p.UID = "web", "default", "u1"
	if c.OneIn(2) {
		p.Labels = map[string]string{"a": "x\n\"y\"", "b": conformance.Pick(c, "", "é", "\\", "z")}
		p.Annotations = map[string]string{"c/d": "e", "f": ""}
	}
	for i := range c.Int(4) {
		key, value := string(rune('a'+i)), conformance.Pick(c, "", "1", "two\n")
		if c.OneIn(2) {
			in.ConfigMap.BinaryData = map[string][]byte{key + "b": []byte(value)}
		}
		if in.ConfigMap.Data == nil {
			in.ConfigMap.Data, in.Secret.Data = map[string]string{}, map[string][]byte{}
		}
		in.ConfigMap.Data[key], in.Secret.Data[key] = value, []byte(value)
	}
	for i, name := range []string{"c", "d"} {
		container := corev1.Container{Name: name}
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "hugepages-2Mi"} {
			if c.OneIn(2) {
				container.Resources.Limits = setQuantity(container.Resources.Limits, r, c)
			}
			if c.OneIn(2) {
				container.Resources.Requests = setQuantity(container.Resources.Requests, r, c)
			}
		}
		if i == 0 {
			p.Spec.Containers = append(p.Spec.Containers, container)
		} else {
			p.Spec.InitContainers = append(p.Spec.InitContainers, container)
		}
	}
	if c.OneIn(2) {
		in.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi")}
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: makeSource(c)}}
	return in
}

func setQuantity(list corev1.ResourceList, name corev1.ResourceName, c *conformance.Choices) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[name] = resource.MustParse(conformance.Pick(c, "1", "0", "1500m", "4Mi", "3Gi", "2M"))
	return list
}

// makeSource returns a random volume source.
func makeSource(c *conformance.Choices) (v corev1.VolumeSource) {
	mode, optional := conformance.Pick[int32](c, 0o644, 0o400, 0, 0o777), c.OneIn(2)
	var items []corev1.KeyToPath
	for range c.Int(4) {
		item := corev1.KeyToPath{Key: conformance.Pick(c, "a", "b", "ab", "none"), Path: pickPath(c)}
		if c.OneIn(2) {
			item.Mode = new(int32(0o600))
		}
		items = append(items, item)
	}
	switch c.Int(3) {
	case 0:
		v.ConfigMap = &corev1.ConfigMapVolumeSource{Items: items, DefaultMode: &mode, Optional: &optional}
		v.ConfigMap.Name = "o"
	case 1:
		v.Secret = &corev1.SecretVolumeSource{SecretName: "o", Items: items, DefaultMode: &mode, Optional: &optional}
	default:
		v.DownwardAPI = &corev1.DownwardAPIVolumeSource{DefaultMode: &mode}
		for range c.Int(4) {
			v.DownwardAPI.Items = append(v.DownwardAPI.Items, makeDownward(c))
		}
	}
	return v
}

func makeDownward(c *conformance.Choices) corev1.DownwardAPIVolumeFile {
	f := corev1.DownwardAPIVolumeFile{Path: pickPath(c)}
	if c.OneIn(3) {
		f.Mode = new(int32(0o440))
	}
	if c.OneIn(2) {
		f.FieldRef = &corev1.ObjectFieldSelector{FieldPath: conformance.Pick(c, "metadata.name", "metadata.namespace", "metadata.uid",
			"metadata.labels", "metadata.annotations", "metadata.labels['a']", "metadata.annotations['c/d']", "metadata.labels['none']",
			"status.podIP", "spec.nodeName", "metadata.name['a']")}
		return f
	}
	f.ResourceFieldRef = &corev1.ResourceFieldSelector{
		ContainerName: conformance.Pick(c, "c", "d", "none"),
		Resource: conformance.Pick(c, "limits.cpu", "requests.cpu", "limits.memory", "requests.memory", "limits.ephemeral-storage",
			"requests.ephemeral-storage", "limits.hugepages-2Mi", "requests.hugepages-2Mi", "limits.gpu"),
		Divisor: resource.MustParse(conformance.Pick(c, "0", "1", "1m", "1Mi", "1Gi")),
	}
	return f
}

// kubeletHost has the methods that the kubelet's volume plugins call.
type kubeletHost struct {
	volume.VolumeHost
	allocatable corev1.ResourceList
}

func (h kubeletHost) GetNodeAllocatable() (corev1.ResourceList, error) { return h.allocatable, nil }

// kubeletPayload returns the files that the kubelet's plugins pass to the atomic writer, or "refused".
func kubeletPayload(in volumeOf) map[string]string {
	var files map[string]volumeutil.FileProjection
	var err error
	switch v := in.Pod.Spec.Volumes[0]; {
	case v.ConfigMap != nil:
		files, err = kubeconfigmap.MakePayload(v.ConfigMap.Items, in.ConfigMap, v.ConfigMap.DefaultMode, nil, *v.ConfigMap.Optional)
	case v.Secret != nil:
		files, err = kubesecret.MakePayload(v.Secret.Items, in.Secret, v.Secret.DefaultMode, nil, *v.Secret.Optional)
	default:
		files, err = kubedownward.CollectData(v.DownwardAPI.Items, in.Pod, kubeletHost{allocatable: in.Allocatable}, v.DownwardAPI.DefaultMode, nil)
	}
	if err != nil || slices.ContainsFunc(paths(files), notWritten) {
		return map[string]string{"": "refused"}
	}
	out := map[string]string{}
	for name, f := range files {
		out[name] = fmt.Sprintf("%o %q", f.Mode, f.Data)
	}
	return out
}

func paths(files map[string]volumeutil.FileProjection) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	return names
}

// notWritten reports whether the atomic writer rejects a path. TestAtomicWriter covers these paths.
func notWritten(name string) bool {
	return strings.HasPrefix(name, "..") || slices.Contains(strings.Split(name, "/"), "..")
}

// nested compares the directories in volume v after its setup. The inputs are pods with random mount paths of v and other
// volumes.
var nested = conformance.Comparison[*corev1.Pod, []string]{
	Make: func(c *conformance.Choices) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Namespace, p.UID = "web", "default", "u1"
		v := corev1.Volume{Name: "v"}
		v.ConfigMap = &corev1.ConfigMapVolumeSource{}
		v.ConfigMap.Name = "o"
		p.Spec.Volumes = []corev1.Volume{v}
		for i := range 1 + c.Int(2) {
			container := corev1.Container{Name: string(rune('a' + i))}
			for range c.Int(6) {
				container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
					Name: conformance.Pick(c, "v", "x", "y"),
					MountPath: conformance.Pick(c, "/etc", "/etc/", "/etc/a", "/etc/a/b", "/etc/a-b", "/etc/a.b", "/etc/a/b/c", "/etc2", "/x", "/etc//d",
						"/etc/./e", "/etc/f/../g", "/etc/a/", "/"),
				})
			}
			if c.OneIn(2) {
				p.Spec.InitContainers = append(p.Spec.InitContainers, container)
			} else {
				p.Spec.Containers = append(p.Spec.Containers, container)
			}
		}
		return p
	},
	Kubelet: func(p *corev1.Pod) []string {
		dir := tempDir()
		defer os.RemoveAll(dir)
		if err := volumeutil.MakeNestedMountpoints("v", dir, *p); err != nil {
			panic(err)
		}
		return directories(dir)
	},
	Ours: func(p *corev1.Pod) []string {
		root := tempDir()
		defer os.RemoveAll(root)
		m := &objects.Memory{}
		o := &corev1.ConfigMap{}
		o.Namespace, o.Name = "default", "o"
		if err := m.PutConfigMap(o); err != nil {
			panic(err)
		}
		v := nodevolume.Volume{Pod: p, Source: &p.Spec.Volumes[0], UID: "u1", Name: "v", PodDir: root, Dir: path.Join(root, "v"), Warn: func(string, string) {}}
		if _, err := intree.Plugins(intree.Options{Objects: m})[nodevolume.ConfigMap].SetUp(context.Background(), v); err != nil {
			panic(err)
		}
		return directories(v.Dir)
	},
}

func tempDir() string {
	dir, err := os.MkdirTemp("", "nested")
	if err != nil {
		panic(err)
	}
	return dir
}

// directories returns all paths below a directory, except the files of the atomic writer.
func directories(dir string) (found []string) {
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if strings.HasPrefix(e.Name(), "..") {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		found = append(found, strings.TrimPrefix(at, dir))
		return err
	})
	if err != nil {
		panic(err)
	}
	return found
}
