// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	csi "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/volume"
)

// SetUp gives a volume to a pod. It is called again where the driver wants that (requiresRepublish), and what goes wrong then leaves
// what the pod has.
func (p *Plugin) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	op, err := p.begin(ctx, &v)
	if err != nil {
		return asItIs(&v, volume.Mount{}, undone(&v, isPublished, err))
	}
	defer op.client.close()
	m := volume.Mount{HostPath: publishPath(&v), ReadOnly: op.spec.readOnly, Refresh: op.object.republish}
	if err := op.object.allows(op.spec.driver, op.spec.mode); err != nil && !op.spec.block { // as in the kubelet
		return m, undone(&v, isPublished, err)
	}
	u, err := p.publishUse(ctx, op, &v)
	if err != nil {
		return asItIs(&v, m, undone(&v, isPublished, err))
	}
	if err := p.prepare(op, &v, m.HostPath); err != nil {
		return m, err
	}
	staged := v.StagingDir
	if !op.spec.block && !op.can[stages] || op.spec.mode != persistentMode {
		staged = ""
	}
	_, err = call(ctx, op.client, "NodePublishVolume", op.client.node.NodePublishVolume, op.spec.publishRequest(m.HostPath, staged, u), u.hide...)
	if err != nil {
		return m, failed(&v, err, func() (bool, error) { return removePublished(&v) })
	}
	if op.spec.block {
		return m, nil
	}
	m.SELinuxRelabel = v.SELinuxLabel == "" && hasSELinuxLabels(m.HostPath)
	return m, op.giveToGroup(ctx, &v, m.HostPath)
}

// asItIs returns a volume that an earlier agent has had published, and is mounted still, as one that can be used though its driver or the
// cluster cannot be asked about it. It is published again when they can.
func asItIs(v *volume.Volume, m volume.Mount, err error) (volume.Mount, error) {
	at := publishPath(v)
	if !v.Recovered || v.Update {
		return m, err
	}
	if mounted, mountErr := mount.IsMountPoint(at); !mounted || mountErr != nil {
		return m, err
	}
	m = volume.Mount{HostPath: at, ReadOnly: v.ReadOnly, Refresh: true}
	m.SELinuxRelabel = !v.Block && v.SELinuxLabel == "" && hasSELinuxLabels(at)
	return m, &volume.StaleError{Err: err}
}

// publishUse collects what a driver is told when it gives a volume to a pod.
func (p *Plugin) publishUse(ctx context.Context, op *operation, v *volume.Volume) (u use, err error) {
	u.can, u.attributes = op.can, op.spec.attributes
	if u.publishContext, err = p.publishContext(ctx, &op.spec, &op.object); err != nil {
		return u, err
	}
	if u.secrets, err = p.secret(ctx, "nodePublishSecretRef", op.spec.publishSecret); err != nil {
		return u, err
	}
	u.hide = values(u.secrets)
	if op.object.podInfo {
		u.attributes = with(u.attributes, podInfo(v.Pod, op.spec.mode))
	}
	op.spec.mountOptions = mountOptions(&op.spec, v)
	if op.spec.block {
		return u, nil
	}
	text, tokens, err := p.tokens(ctx, &op.object, v.Pod)
	if err != nil {
		return u, err
	}
	if text != "" {
		u.hide = append(u.hide, tokens...)
		if op.object.tokensAsSecrets {
			u.secrets = with(u.secrets, map[string]string{tokensKey: text})
		} else {
			u.attributes = with(u.attributes, map[string]string{tokensKey: text})
		}
	}
	if op.can[mountsGroup] {
		u.group = fsGroup(v.Pod)
	}
	return u, nil
}

// prepare makes the directory that a volume is published in, and writes its data. The driver makes what is published.
func (p *Plugin) prepare(op *operation, v *volume.Volume, at string) error {
	dir := filepath.Dir(at)
	if err := os.MkdirAll(dir, 0o750); err != nil || op.spec.block {
		return err
	}
	return saveData(dir, labeled(map[string]string{
		keySpec: v.Spec, keyHandle: op.spec.handle, keyDriver: op.spec.driver, keyNode: p.opts.NodeName, keyMode: string(op.spec.mode),
		keyAttachment: attachmentName(op.spec.handle, op.spec.driver, p.opts.NodeName),
	}, v))
}

// TearDown takes a volume from a pod. Where neither data nor a mount are left there is nothing to be taken.
func (p *Plugin) TearDown(ctx context.Context, v volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	o, published, err := p.publisher(&v)
	if err != nil {
		return err
	}
	at := publishPath(&v)
	if published {
		c, err := p.open(ctx, o.driver)
		if err != nil {
			return err
		}
		defer c.close()
		_, err = call(ctx, c, "NodeUnpublishVolume", c.node.NodeUnpublishVolume, &csi.NodeUnpublishVolumeRequest{VolumeId: o.handle, TargetPath: at})
		if err != nil {
			return err
		}
	}
	left, err := removePublished(&v)
	if err == nil && left {
		err = fmt.Errorf("CSI driver %s says that it has unpublished volume %.256q, and %s is mounted still", o.driver, o.handle, at)
	}
	if err == nil && p.cache != nil {
		p.cache.Forget(v.UID)
	}
	return err
}

// publisher returns who has given a volume to a pod, and whether somebody may have.
func (p *Plugin) publisher(v *volume.Volume) (o owner, published bool, err error) {
	if there, err := isPublished(v); !there || err != nil {
		return o, false, err
	}
	if v.Block {
		o, err = deviceOwner(v)
		return o, o.valid(), err
	}
	o, err = loadData(v.Dir)
	if err == nil {
		return o, true, nil
	}
	left, leftErr := isLeft(publishPath(v))
	if leftErr != nil || !left {
		return o, false, leftErr // of damaged data nothing else is left
	}
	if s, specErr := specOf(v); specErr == nil {
		return owner{s.driver, s.handle}, true, nil
	}
	if o := (owner{v.Device.Data[keyDriver], v.Device.Data[keyHandle]}); o.valid() {
		return o, true, nil
	}
	return o, false, fmt.Errorf("nobody knows the driver of volume %q any more: unmount %s, and it is removed: %w", v.Name, publishPath(v), err)
}

// isPublished reports whether a volume may be published for a pod: its data are there (for a block volume the directory that it is
// published in), or something is mounted where it is published.
func isPublished(v *volume.Volume) (bool, error) {
	at := filepath.Join(v.Dir, dataFile)
	if v.Block {
		at = filepath.Dir(publishPath(v))
	}
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return isLeft(publishPath(v))
}

// publishPath returns where a volume is published for a pod.
func publishPath(v *volume.Volume) string {
	if v.Block {
		return filepath.Join(v.PluginDir, blockPathsOf(v.Spec).publish, v.UID)
	}
	return filepath.Join(v.Dir, mountDir)
}

// removePublished removes what was made for a volume to be published, unless something is mounted there.
func removePublished(v *volume.Volume) (left bool, err error) {
	at := publishPath(v)
	if !v.Block {
		return removeMountDir(at)
	}
	if left, err = isLeft(at); left || err != nil {
		return left, err
	}
	if err := remove(at); err != nil {
		return false, err
	}
	_ = os.Remove(filepath.Dir(at)) // which is not empty as long as another pod has it
	return false, nil
}
