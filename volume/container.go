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

// Container adds the volumes of a pod to what is known of a container when it is created: all that are set up, as a container can
// take variables from files in volumes that it does not mount. What it mounts has to be among them, which Prepare sees to.
// Volumes that are there already, those of images, stay. Paths within volumes are mounted when the config of the container is made,
// before ctx ends.
func (v *Volumes) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil {
		p = &podState{} // it has no volumes
	}
	volumes := make(map[string]podspec.Volume, len(l.Volumes)+len(p.volumes))
	maps.Copy(volumes, l.Volumes)
	on := make(map[string]string, len(p.volumes))
	for _, e := range p.volumes {
		for _, name := range e.recorded.Names() {
			on[name] = e.recorded.Spec()
			if e.plan.Phase == plan.Ready && e.plan.Desired == plan.Mounted {
				volumes[name] = e.launched(podvolume.Find(pod, name))
			}
		}
	}
	for name := range podvolume.UsedBy(c) {
		if _, ok := volumes[name]; !ok && podvolume.Find(pod, name) != nil {
			return fmt.Errorf("volume %s of container %s: it is not set up", fielderr.Quote(name), c.Name)
		}
	}
	l.Volumes = volumes
	l.SubPath = func(mount int, at podspec.Volume, path string) (string, error) {
		return v.subPath(ctx, p.dir, on, c, mount, at, path)
	}
	return nil
}

// launched returns a volume that is set up as containers get it. The pod may have a claim under several names, read-only under some.
func (e *entry) launched(vol *corev1.Volume) podspec.Volume {
	ro := e.mount.ReadOnly || vol != nil && podvolume.ReadOnly(vol)
	if e.recorded.Block {
		return podspec.Volume{Device: e.mount.HostPath, ReadOnly: ro}
	}
	return podspec.Volume{HostPath: e.mount.HostPath, ReadOnly: ro, SELinuxRelabel: e.mount.SELinuxRelabel}
}

// subPath mounts a path within a volume and returns where. The error is part of the status of the pod: it has no paths of the
// host. It does not wait for a file system that does not answer for longer than a step of a volume may.
func (v *Volumes) subPath(ctx context.Context, podDir string, on map[string]string, c *corev1.Container, mount int, at podspec.Volume, path string) (string, error) {
	if mount < 0 || mount >= len(c.VolumeMounts) || podDir == "" {
		return "", errors.New("there is no such mount")
	}
	name := c.VolumeMounts[mount].Name
	if !record.IsPlainName(name) || !record.IsPlainName(c.Name) {
		return "", errors.New("a name is no file name")
	}
	if spec, ok := on[name]; ok {
		name = spec
	}
	r := subpath.Request{Volume: at.HostPath, SubPath: path, Target: filepath.Join(podDir, record.SubPathDir, name, c.Name, strconv.Itoa(mount))}
	ctx, cancel := context.WithTimeout(ctx, v.opts.Timeout)
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

// Groups returns the supplemental groups that the volumes of a pod ask for and that it does not have already, once they are set up: for
// Options.VolumeGroups of package podspec.
func (v *Volumes) Groups(pod *corev1.Pod) []int64 {
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
		if gid, ok := claim.Group(e.claimed.pv); ok && !slices.Contains(has, gid) && !slices.Contains(groups, gid) {
			groups = append(groups, gid)
		}
	}
	return groups
}
