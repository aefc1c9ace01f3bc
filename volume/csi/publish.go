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

// SetUp publishes a volume for a pod (NodePublishVolume). It is called again periodically for drivers with requiresRepublish; an
// error then leaves the published volume in place.
func (p *Plugin) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	op, err := p.beginOperation(ctx, &v)
	if err != nil {
		return useRecovered(&v, volume.Mount{}, markNothingMade(&v, isPublished, err))
	}
	defer op.client.close()
	m := volume.Mount{HostPath: publishPath(&v), ReadOnly: op.spec.readOnly, UpdatePeriodically: op.policy.requiresRepublish}
	if err := op.policy.checkMode(op.spec.driver, op.spec.mode); err != nil && !op.spec.block { // as in the kubelet
		return m, markNothingMade(&v, isPublished, err)
	}
	u, err := p.publishParams(ctx, op, &v)
	if err != nil {
		return useRecovered(&v, m, markNothingMade(&v, isPublished, err))
	}
	if err := p.prepareDir(op, &v, m.HostPath); err != nil {
		return m, err
	}
	staged := v.StagingDir
	if !op.spec.block && !op.can[canStage] || op.spec.mode != persistentMode {
		staged = ""
	}
	_, err = invoke(ctx, op.client, "NodePublishVolume", op.client.node.NodePublishVolume, op.spec.publishRequest(m.HostPath, staged, u), u.redact...)
	if err != nil {
		return m, cleanUpFailed(&v, err, func() (bool, error) { return removeTarget(&v) })
	}
	if op.spec.block {
		return m, nil
	}
	m.SELinuxRelabel = v.SELinuxLabel == "" && hasSELinuxLabels(m.HostPath)
	return m, op.applyFSGroup(ctx, &v, m.HostPath)
}

// useRecovered returns a StaleError and a usable volume, if a previous agent has published v and it is still mounted. Otherwise
// it returns m and err. It is for errors of requests about the driver; the publish is retried.
func useRecovered(v *volume.Volume, m volume.Mount, err error) (volume.Mount, error) {
	at := publishPath(v)
	if !v.Recovered || v.Update {
		return m, err
	}
	if mounted, mountErr := mount.IsMountPoint(at); !mounted || mountErr != nil {
		return m, err
	}
	m = volume.Mount{HostPath: at, ReadOnly: v.ReadOnly, UpdatePeriodically: true}
	m.SELinuxRelabel = !v.Block && v.SELinuxLabel == "" && hasSELinuxLabels(at)
	return m, &volume.StaleError{Err: err}
}

// publishParams collects the parameters of a NodePublishVolume call beside the volume itself.
func (p *Plugin) publishParams(ctx context.Context, op *operation, v *volume.Volume) (u callParams, err error) {
	u.can, u.attributes = op.can, op.spec.attributes
	if u.publishContext, err = p.publishContext(ctx, &op.spec, &op.policy); err != nil {
		return u, err
	}
	if u.secrets, err = p.readSecret(ctx, "nodePublishSecretRef", op.spec.publishSecret); err != nil {
		return u, err
	}
	u.redact = secretValues(u.secrets)
	if op.policy.podInfoOnMount {
		u.attributes = mergeMaps(u.attributes, podInfoAttributes(v.Pod, op.spec.mode))
	}
	op.spec.mountOptions = mountOptions(&op.spec, v)
	if op.spec.block {
		return u, nil
	}
	text, tokens, err := p.requestTokens(ctx, &op.policy, v.Pod)
	if err != nil {
		return u, err
	}
	if text != "" {
		u.redact = append(u.redact, tokens...)
		if op.policy.tokensAsSecrets {
			u.secrets = mergeMaps(u.secrets, map[string]string{tokensKey: text})
		} else {
			u.attributes = mergeMaps(u.attributes, map[string]string{tokensKey: text})
		}
	}
	if op.can[canMountGroup] {
		u.group = fsGroup(v.Pod)
	}
	return u, nil
}

// prepareDir creates the parent directory of the target path at, and writes vol_data.json. The driver creates the target itself.
func (p *Plugin) prepareDir(op *operation, v *volume.Volume, at string) error {
	dir := filepath.Dir(at)
	if err := os.MkdirAll(dir, 0o750); err != nil || op.spec.block {
		return err
	}
	return saveData(dir, addLabel(map[string]string{
		keySpec: v.SpecName, keyHandle: op.spec.handle, keyDriver: op.spec.driver, keyNode: p.opts.NodeName, keyMode: string(op.spec.mode),
		keyAttachment: attachmentName(op.spec.handle, op.spec.driver, p.opts.NodeName),
	}, v))
}

// TearDown unpublishes a volume (NodeUnpublishVolume) and removes its directory. If neither vol_data.json nor a mount exists, no
// driver is called.
func (p *Plugin) TearDown(ctx context.Context, v volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	o, published, err := p.findPublisher(&v)
	if err != nil {
		return err
	}
	at := publishPath(&v)
	if published {
		c, err := p.connectDriver(ctx, o.driver)
		if err != nil {
			return err
		}
		defer c.close()
		_, err = invoke(ctx, c, "NodeUnpublishVolume", c.node.NodeUnpublishVolume, &csi.NodeUnpublishVolumeRequest{VolumeId: o.handle, TargetPath: at})
		if err != nil {
			return err
		}
	}
	left, err := removeTarget(&v)
	if err == nil && left {
		err = fmt.Errorf("CSI driver %s says that it has unpublished volume %.256q, and %s is mounted still", o.driver, o.handle, at)
	}
	if err == nil && p.cache != nil {
		p.cache.Forget(v.UID)
	}
	return err
}

// findPublisher returns driver and handle of a volume that is, or may be, published for a pod. published is false if no driver
// needs to be called.
func (p *Plugin) findPublisher(v *volume.Volume) (o owner, published bool, err error) {
	if there, err := isPublished(v); !there || err != nil {
		return o, false, err
	}
	if v.Block {
		o, err = deviceOwner(v)
		return o, o.isValid(), err
	}
	o, err = loadData(v.Dir)
	if err == nil {
		return o, true, nil
	}
	left, leftErr := isMounted(publishPath(v))
	if leftErr != nil || !left {
		return o, false, leftErr // with damaged data and without a mount, only files remain
	}
	if s, specErr := specOf(v); specErr == nil {
		return owner{s.driver, s.handle}, true, nil
	}
	if o := (owner{v.Device.Data[keyDriver], v.Device.Data[keyHandle]}); o.isValid() {
		return o, true, nil
	}
	return o, false, fmt.Errorf("nobody knows the driver of volume %q any more: unmount %s, and it is removed: %w", v.Name, publishPath(v), err)
}

// isPublished reports whether a volume may be published for a pod: it has a vol_data.json (a block volume its publish directory),
// or its target path is mounted.
func isPublished(v *volume.Volume) (bool, error) {
	at := filepath.Join(v.Dir, dataFile)
	if v.Block {
		at = filepath.Dir(publishPath(v))
	}
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return isMounted(publishPath(v))
}

// publishPath returns the target path of a volume: where it is published for the pod.
func publishPath(v *volume.Volume) string {
	if v.Block {
		return filepath.Join(v.PluginDir, blockPathsOf(v.SpecName).publish, v.UID)
	}
	return filepath.Join(v.Dir, mountDir)
}

// removeTarget removes target path, vol_data.json and parent directory of a published volume. left is true, and nothing is
// removed, if the target is still mounted.
func removeTarget(v *volume.Volume) (left bool, err error) {
	at := publishPath(v)
	if !v.Block {
		return removeMountDir(at)
	}
	if left, err = isMounted(at); left || err != nil {
		return left, err
	}
	if err := removePath(at); err != nil {
		return false, err
	}
	_ = os.Remove(filepath.Dir(at)) // fails while another pod uses the volume
	return false, nil
}
