// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/volume/subpath"
)

// Container adds the volumes of the pod that are set up to launch.Volumes, and sets launch.SubPath to a function that mounts the
// subPaths of container c. That function fails after ctx has ended. It returns an error if the container mounts a volume that is
// not set up.
func (v *Volumes) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, launch *podspec.Launch) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil {
		p = &podState{} // the pod has no volumes
	}
	volumes := make(map[string]podspec.Volume, len(launch.Volumes)+len(p.volumes))
	// launch already has volumes such as image volumes.
	maps.Copy(volumes, launch.Volumes)
	specNames := make(map[string]string, len(p.volumes))
	// Environment variables can come from files in volumes that c does not mount.
	for _, e := range p.volumes {
		for _, name := range e.recorded.Names() {
			specNames[name] = e.recorded.SpecName()
			if e.plan.Phase == plan.Ready && e.plan.Desired == plan.Mounted {
				volumes[name] = e.launchVolume(podvolume.Find(pod, name))
			}
		}
	}
	for name := range podvolume.UsedByContainer(c) {
		if _, ok := volumes[name]; !ok && podvolume.Find(pod, name) != nil {
			return fmt.Errorf("volume %s of container %s: it is not set up", fielderr.Quote(name), c.Name)
		}
	}
	launch.Volumes = volumes
	launch.SubPath = func(mount int, at podspec.Volume, path string) (string, error) {
		return v.mountSubPath(ctx, p.dir, specNames, c, mount, at, path)
	}
	return nil
}

// launchVolume returns the volume for a container. vol, from the pod spec, determines whether it is mounted read-only.
func (e *entry) launchVolume(vol *corev1.Volume) podspec.Volume {
	ro := e.mount.ReadOnly || vol != nil && podvolume.ReadOnly(vol)
	if e.recorded.Block {
		return podspec.Volume{Device: e.mount.HostPath, ReadOnly: ro}
	}
	return podspec.Volume{HostPath: e.mount.HostPath, ReadOnly: ro, SELinuxRelabel: e.mount.SELinuxRelabel}
}

// mountSubPath bind-mounts a subPath of a volume for container.VolumeMounts[mount], and returns the mount point.
func (v *Volumes) mountSubPath(ctx context.Context, podDir string, specNames map[string]string, container *corev1.Container, mount int, vol podspec.Volume, path string) (string, error) {
	if mount < 0 || mount >= len(container.VolumeMounts) || podDir == "" {
		return "", errors.New("no such volume mount")
	}
	name := container.VolumeMounts[mount].Name
	if !record.IsPlainName(name) || !record.IsPlainName(container.Name) {
		return "", errors.New("name of volume or container is not a file name")
	}
	// The directory may have another name.
	if spec, ok := specNames[name]; ok {
		name = spec
	}
	// The error is shown in the pod status and has no host paths.
	r := subpath.Request{Volume: vol.HostPath, SubPath: path, Target: filepath.Join(podDir, record.SubPathDir, name, container.Name, strconv.Itoa(mount))}
	// The file system may hang.
	ctx, cancel := context.WithTimeout(ctx, v.opts.StepTimeout)
	defer cancel()
	found := make(chan string, 1)
	err := v.calls.Do(ctx, r.Target, func() error {
		target, err := subpath.Prepare(ctx, r)
		found <- target
		return err
	})
	if err != nil {
		return "", err
	}
	return <-found, nil
}

// SupplementalGroups returns the group IDs that the PVs of a pod require and that the security context of the pod does not
// list. The caller calls it after Prepare, as Options.VolumeGroups of package podspec.
func (v *Volumes) SupplementalGroups(pod *corev1.Pod) []int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil {
		return nil
	}
	var has, groups []int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		has = sc.SupplementalGroups
	}
	for _, e := range p.volumes {
		if e.claimed == nil {
			continue
		}
		if gid, ok := claim.SupplementalGroup(e.claimed.pv); ok && !slices.Contains(has, gid) && !slices.Contains(groups, gid) {
			groups = append(groups, gid)
		}
	}
	return groups
}
