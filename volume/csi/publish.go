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

// SetUp mounts the volume for its pod by calling NodePublishVolume. For drivers with requiresRepublish, SetUp is called
// again periodically. After an error of such a call, the volume stays mounted.
func (p *Plugin) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	op, err := p.beginOperation(ctx, &vol)
	if err != nil {
		return useRecovered(&vol, volume.Mount{}, markFinal(&vol, isPublished, err))
	}
	defer op.client.close()
	m := volume.Mount{HostPath: publishPath(&vol), ReadOnly: op.spec.readOnly, UpdatePeriodically: op.policy.requiresRepublish}
	if err := op.policy.checkMode(op.spec.driver, op.spec.mode); err != nil && !op.spec.block { // as in the kubelet
		return m, markFinal(&vol, isPublished, err)
	}
	u, err := p.publishParams(ctx, op, &vol)
	if err != nil {
		return useRecovered(&vol, m, markFinal(&vol, isPublished, err))
	}
	if err := p.prepareDir(op, &vol, m.HostPath); err != nil {
		return m, err
	}
	staged := vol.StagingDir
	if !op.spec.block && !op.can[canStage] || op.spec.mode != persistentMode {
		staged = ""
	}
	_, err = invoke(ctx, op.client, "NodePublishVolume", op.client.node.NodePublishVolume, op.spec.publishRequest(m.HostPath, staged, u), u.redact...)
	if err != nil {
		return m, cleanUpFailed(&vol, err, func() (bool, error) { return removeTarget(&vol) })
	}
	if op.spec.block {
		return m, nil
	}
	m.SELinuxRelabel = vol.SELinuxLabel == "" && hasSELinuxLabels(m.HostPath)
	return m, op.applyFSGroup(ctx, &vol, m.HostPath)
}

// useRecovered returns m and err, from before the call of NodePublishVolume, unless a previous agent process has mounted the
// volume.
func useRecovered(vol *volume.Volume, m volume.Mount, err error) (volume.Mount, error) {
	at := publishPath(vol)
	if !vol.Recovered || vol.Update {
		return m, err
	}
	if mounted, mountErr := mount.IsMountPoint(at); !mounted || mountErr != nil {
		return m, err
	}
	m = volume.Mount{HostPath: at, ReadOnly: vol.ReadOnly, UpdatePeriodically: true}
	m.SELinuxRelabel = !vol.Block && vol.SELinuxLabel == "" && hasSELinuxLabels(at)
	// Containers may start with the mount, and SetUp is retried.
	return m, &volume.StaleError{Err: err}
}

// publishParams returns the parameters of the NodePublishVolume call that are not in the volume's spec. It sets
// op.spec.mountOptions.
func (p *Plugin) publishParams(ctx context.Context, op *operation, vol *volume.Volume) (params callParams, err error) {
	params.can, params.attributes = op.can, op.spec.attributes
	if params.publishContext, err = p.publishContext(ctx, &op.spec, &op.policy); err != nil {
		return params, err
	}
	if params.secrets, err = p.readSecret(ctx, "nodePublishSecretRef", op.spec.publishSecret); err != nil {
		return params, err
	}
	params.redact = secretValues(params.secrets)
	if op.policy.podInfoOnMount {
		params.attributes = mergeMaps(params.attributes, podInfoAttributes(vol.Pod, op.spec.mode))
	}
	op.spec.mountOptions = mountOptions(&op.spec, vol)
	if op.spec.block {
		return params, nil
	}
	text, tokens, err := p.requestTokens(ctx, &op.policy, vol.Pod)
	if err != nil {
		return params, err
	}
	if text != "" {
		params.redact = append(params.redact, tokens...)
		if op.policy.tokensAsSecrets {
			params.secrets = mergeMaps(params.secrets, map[string]string{tokensKey: text})
		} else {
			params.attributes = mergeMaps(params.attributes, map[string]string{tokensKey: text})
		}
	}
	if op.can[canMountGroup] {
		params.group = fsGroup(vol.Pod)
	}
	return params, nil
}

// prepareDir creates the parent directory of the target path, which the driver creates, with a file vol_data.json.
func (p *Plugin) prepareDir(op *operation, vol *volume.Volume, path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil || op.spec.block {
		return err
	}
	return saveData(dir, addLabel(map[string]string{
		keySpec: vol.SpecName, keyHandle: op.spec.handle, keyDriver: op.spec.driver, keyNode: p.opts.NodeName, keyMode: string(op.spec.mode),
		keyAttachment: attachmentName(op.spec.handle, op.spec.driver, p.opts.NodeName),
	}, vol))
}

// TearDown unmounts the volume by calling NodeUnpublishVolume, and removes the directory of the volume. It does not call the
// driver if neither vol_data.json nor a mount of the volume exists.
func (p *Plugin) TearDown(ctx context.Context, vol volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	o, published, err := p.findPublisher(&vol)
	if err != nil {
		return err
	}
	at := publishPath(&vol)
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
	left, err := removeTarget(&vol)
	if err == nil && left {
		err = fmt.Errorf("CSI driver %s has unpublished volume %.256q, but %s is still mounted", o.driver, o.handle, at)
	}
	if err == nil && p.cache != nil {
		p.cache.Forget(vol.UID)
	}
	return err
}

// findPublisher returns the driver and handle for NodeUnpublishVolume. If published is false, the driver must not be called.
func (p *Plugin) findPublisher(vol *volume.Volume) (o owner, published bool, err error) {
	if there, err := isPublished(vol); !there || err != nil {
		return o, false, err
	}
	if vol.Block {
		o, err = deviceOwner(vol)
		return o, o.isValid(), err
	}
	o, err = loadData(vol.Dir)
	if err == nil {
		return o, true, nil
	}
	left, leftErr := isMounted(publishPath(vol))
	if leftErr != nil || !left {
		return o, false, leftErr // with damaged data and without a mount, only files remain
	}
	if s, specErr := specOf(vol); specErr == nil {
		return owner{s.driver, s.handle}, true, nil // from the PV
	}
	if o := (owner{vol.Device.Data[keyDriver], vol.Device.Data[keyHandle]}); o.isValid() {
		return o, true, nil
	}
	return o, false, fmt.Errorf("driver of volume %q is unknown: unmount %s to have it removed: %w", vol.Name, publishPath(vol), err)
}

// isPublished reports whether the volume is published for its pod, or may be: it is mounted, or a file or directory of it
// exists.
func isPublished(vol *volume.Volume) (bool, error) {
	at := filepath.Join(vol.Dir, dataFile)
	if vol.Block {
		at = filepath.Dir(publishPath(vol))
	}
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return isMounted(publishPath(vol))
}

// publishPath returns the path at which the driver mounts the volume for its pod. It is the target path of
// NodePublishVolume.
func publishPath(vol *volume.Volume) string {
	if vol.Block {
		return filepath.Join(vol.PluginDir, blockPathsOf(vol.SpecName).publish, vol.UID)
	}
	return filepath.Join(vol.Dir, mountDir)
}

// removeTarget removes the target path of the volume and its directory, or returns true if it is still mounted.
func removeTarget(vol *volume.Volume) (stillMounted bool, err error) {
	at := publishPath(vol)
	if !vol.Block {
		return removeMountDir(at)
	}
	if stillMounted, err = isMounted(at); stillMounted || err != nil {
		return stillMounted, err
	}
	if err := removePath(at); err != nil {
		return false, err
	}
	_ = os.Remove(filepath.Dir(at)) // fails while another pod uses the volume
	return false, nil
}
