// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// A strict decoder accepts every manifest, and its pod equals the configuration of the bare CRI calls.
func TestManifestSaysWhatTheFloorDoes(t *testing.T) {
	for _, p := range newPods("ns", `odd"image:1`, "sha256:id", 8, limits{"100m", "32Mi"}) {
		text, err := p.manifest()
		require.NoError(t, err)
		var decoded corev1.Pod
		require.NoError(t, yaml.UnmarshalStrict(text, &decoded), string(text))

		sandbox, container := p.sandboxConfig("/logs"), p.containerConfig("main", "/logs/x", 0)
		assert.Equal(t, decoded.Name, sandbox.GetMetadata().GetName())
		assert.Equal(t, decoded.Namespace, sandbox.GetMetadata().GetNamespace())
		for key, value := range decoded.Labels {
			assert.Equal(t, value, sandbox.GetLabels()[key])
		}
		require.Len(t, decoded.Spec.Containers, 1)
		main := decoded.Spec.Containers[0]
		assert.Equal(t, main.Image, container.GetImage().GetUserSpecifiedImage())
		assert.Equal(t, main.Command, container.GetCommand())
		assert.Equal(t, main.Args, container.GetArgs())
		assert.Len(t, container.GetEnvs(), len(main.Env))
		for _, env := range container.GetEnvs() {
			assert.Contains(t, main.Env, corev1.EnvVar{Name: env.GetKey(), Value: string(env.GetValue())})
		}
		request := main.Resources.Requests[corev1.ResourceCPU]
		assert.EqualValues(t, request.MilliValue()*1024/1000, container.GetLinux().GetResources().GetCpuShares())
		assert.Equal(t, "100m", main.Resources.Limits.Cpu().String(), "pods of agents have limits")
		assert.Equal(t, "32Mi", main.Resources.Limits.Memory().String())
		assert.Zero(t, container.GetLinux().GetResources().GetMemoryLimitInBytes(), "pods of the floor have no limits")
		assert.Zero(t, container.GetLinux().GetResources().GetCpuQuota())
		assert.EqualValues(t, graceSeconds, *decoded.Spec.TerminationGracePeriodSeconds)
	}
}

// A strict decoder accepts a manifest with volumes, and the bare CRI calls mount the same volumes.
func TestManifestWithVolumes(t *testing.T) {
	kinds := volumeKinds(4, false)
	require.Equal(t, []volumeKind{emptyDir, memoryDir, projectedCM, emptyDir}, kinds)
	require.Equal(t, []volumeKind{emptyDir, memoryDir, emptyDir}, volumeKinds(3, true))
	p := withVolumes(newPods("ns", "image", "id", 1, limits{"100m", "32Mi"}), kinds)[0]
	text, err := p.manifest()
	require.NoError(t, err)
	var decoded corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(text, &decoded), string(text))
	volumes, mounts := decoded.Spec.Volumes, decoded.Spec.Containers[0].VolumeMounts
	bare := p.containerConfig("main", "/logs/x", 0).GetMounts()[2:]
	require.Len(t, volumes, 4)
	require.Len(t, mounts, 4)
	require.Len(t, bare, 4)
	assert.NotNil(t, volumes[0].EmptyDir)
	assert.Equal(t, corev1.StorageMediumMemory, volumes[1].EmptyDir.Medium)
	assert.Equal(t, configMapName, volumes[2].Projected.Sources[0].ConfigMap.Name)
	for i := range mounts {
		assert.Equal(t, volumes[i].Name, mounts[i].Name)
		assert.Equal(t, mounts[i].MountPath, bare[i].GetContainerPath())
		assert.Equal(t, "/logs/x/"+volumes[i].Name, bare[i].GetHostPath())
		assert.Equal(t, volumes[i].Projected != nil, bare[i].GetReadonly())
	}
}

func TestWriteObjects(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, writeObjects(dir, "ns"))
	text, err := os.ReadFile(filepath.Join(dir, "ns/configmaps/app.yaml"))
	require.NoError(t, err)
	var decoded corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict(text, &decoded), string(text))
	assert.Equal(t, "ns", decoded.Namespace)
	assert.Equal(t, configMapData, decoded.Data)
}

func TestWriteManifests(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, writeManifests(dir, newPods("ns", "image", "id", 12, limits{})))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 12)
	assert.ErrorIs(t, writeManifests(dir+"/absent", newPods("ns", "image", "id", 1, limits{})), os.ErrNotExist)
}
