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
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/volume"
)

// operation is the state of one operation on a volume, such as a SetUp, which calls the driver several times.
type operation struct {
	client *client
	spec   volumeSpec
	policy driverPolicy
	can    capabilities
}

// beginOperation connects to the driver of the volume, and reads its CSIDriver and capabilities. The caller must close
// op.client.
func (p *Plugin) beginOperation(ctx context.Context, vol *volume.Volume) (op *operation, err error) {
	op = &operation{}
	if op.spec, err = specOf(vol); err != nil {
		return nil, err
	}
	if op.client, err = p.connectDriver(ctx, op.spec.driver); err != nil {
		return nil, err
	}
	if op.policy, err = p.readPolicy(ctx, op.spec.driver); err == nil {
		op.can, err = op.client.getCapabilities(ctx)
	}
	if err != nil {
		op.client.close()
		return nil, err
	}
	return op, nil
}

// markFinal wraps err in a [volume.FinalError] if the volume is not on the node. err is from an operation that failed before it
// called the CSI driver. exists checks whether a previous operation may have put the volume on the node.
func markFinal(vol *volume.Volume, exists func(vol *volume.Volume) (bool, error), err error) error {
	if vol.Update || vol.Recovered {
		return err
	}
	if is, thereErr := exists(vol); is || thereErr != nil {
		return err
	}
	return &volume.FinalError{Err: err}
}

// cleanUpFailed handles err, the error of a failed stage or publish call. If the call had no effect, it calls clean to remove
// the directories of the volume. If clean leaves nothing, it wraps err in a [volume.FinalError].
func cleanUpFailed(vol *volume.Volume, err error, clean func() (left bool, err error)) error {
	call, ok := errors.AsType[*CallError](err)
	if !ok || !call.isFinal() || vol.Update || vol.Recovered { // the call may have had an effect
		return err
	}
	if left, cleanErr := clean(); left || cleanErr != nil {
		return errors.Join(err, cleanErr)
	}
	return &volume.FinalError{Err: err}
}

// Device returns the device of the volume: its unique name, and its staging directory or the directories of a block device. An
// inline volume has the zero value, because it is not shared.
func (p *Plugin) Device(ctx context.Context, vol volume.Volume) (volume.Device, error) {
	if vol.PV == nil {
		return volume.Device{}, nil // an inline volume belongs to one pod
	}
	s, err := specOf(&vol)
	if err != nil {
		return volume.Device{}, err
	}
	d := volume.Device{
		Name: s.driver + "^" + s.handle, Dir: stagingDir(s.driver, s.handle), Data: map[string]string{keyDriver: s.driver, keyHandle: s.handle},
	}
	if s.block {
		if err := checkBlockName(vol.SpecName); err != nil {
			return volume.Device{}, err
		}
		paths := blockPathsOf(vol.SpecName)
		d.Dir, d.MapDir = paths.staging, paths.dev
	}
	if p.opts.Attachments != nil {
		o, err := p.readPolicy(ctx, s.driver)
		if err != nil {
			return volume.Device{}, err
		}
		d.Attachable = o.attachRequired
	}
	return d, nil
}

// Stage mounts the volume at its staging directory by calling NodeStageVolume. Before that it writes vol_data.json. If the
// driver does not have the capability STAGE_UNSTAGE_VOLUME, Stage does not call it.
func (p *Plugin) Stage(ctx context.Context, vol volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	op, err := p.beginOperation(ctx, &vol)
	if err != nil {
		return markFinal(&vol, isStaged, err)
	}
	defer op.client.close()
	u, err := p.stageParams(ctx, op, &vol)
	if err != nil {
		return markFinal(&vol, isStaged, err)
	}
	if op.spec.block { // the kubelet finds a block volume by its data, staged or not
		if err := p.saveBlockData(op, &vol); err != nil {
			return err
		}
	}
	if !op.can[canStage] {
		return nil
	}
	if err := os.MkdirAll(vol.StagingDir, 0o750); err != nil {
		return err
	}
	if !op.spec.block {
		data := map[string]string{keyHandle: op.spec.handle, keyDriver: op.spec.driver}
		if err := saveData(filepath.Dir(vol.StagingDir), addLabel(data, &vol)); err != nil {
			return err
		}
	}
	_, err = invoke(ctx, op.client, "NodeStageVolume", op.client.node.NodeStageVolume, op.spec.stageRequest(vol.StagingDir, u), u.redact...)
	if err != nil {
		return cleanUpFailed(&vol, err, func() (bool, error) { return removeStaging(&vol) })
	}
	return nil
}

// stageParams returns the parameters of the NodeStageVolume call that are not in the spec of the volume, such as secrets. It also
// sets op.spec.mountOptions.
func (p *Plugin) stageParams(ctx context.Context, op *operation, vol *volume.Volume) (params callParams, err error) {
	params.can = op.can
	if params.publishContext, err = p.publishContext(ctx, &op.spec, &op.policy); err != nil {
		return params, err
	}
	if !op.can[canStage] {
		return params, nil
	}
	if params.secrets, err = p.readSecret(ctx, "nodeStageSecretRef", op.spec.stageSecret); err != nil {
		return params, err
	}
	params.redact = secretValues(params.secrets)
	op.spec.mountOptions = mountOptions(&op.spec, vol)
	if !op.spec.block && op.can[canMountGroup] {
		params.group = fsGroup(vol.Pod)
	}
	return params, nil
}

// saveBlockData writes the file vol_data.json of a block volume.
func (p *Plugin) saveBlockData(op *operation, vol *volume.Volume) error {
	dir := filepath.Join(vol.PluginDir, blockPathsOf(vol.SpecName).data)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return saveData(dir, map[string]string{
		keySpec: vol.SpecName, keyHandle: op.spec.handle, keyDriver: op.spec.driver, keyNode: p.opts.NodeName,
		keyAttachment: attachmentName(op.spec.handle, op.spec.driver, p.opts.NodeName),
	})
}

// Unstage unmounts the staging directory of the volume by calling NodeUnstageVolume, and removes that directory. It does not
// call the driver if neither vol_data.json nor a mount exists.
func (p *Plugin) Unstage(ctx context.Context, vol volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	o, err := deviceOwner(&vol)
	if err != nil {
		return err
	}
	staged, err := isStaged(&vol)
	if err != nil {
		return err
	}
	if staged {
		if err := p.unstageVolume(ctx, &vol, o); err != nil {
			return err
		}
	}
	left, err := removeStaging(&vol)
	if err == nil && left {
		err = fmt.Errorf("CSI driver %s has unstaged volume %.256q, but %s is still mounted", o.driver, o.handle, vol.StagingDir)
	}
	return err
}

// unstageVolume calls NodeUnstageVolume of the driver o.driver for the volume handle o.handle. It does nothing if the driver
// does not have the capability STAGE_UNSTAGE_VOLUME.
func (p *Plugin) unstageVolume(ctx context.Context, vol *volume.Volume, o owner) error {
	c, err := p.connectDriver(ctx, o.driver)
	if err != nil {
		return err
	}
	defer c.close()
	can, err := c.getCapabilities(ctx)
	if err != nil || !can[canStage] {
		return err
	}
	_, err = invoke(ctx, c, "NodeUnstageVolume", c.node.NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: o.handle, StagingTargetPath: vol.StagingDir})
	return err
}

// deviceOwner returns the driver and the volume handle from the record of the device or vol_data.json, or the zero value.
func deviceOwner(vol *volume.Volume) (owner, error) {
	if o := (owner{vol.Device.Data[keyDriver], vol.Device.Data[keyHandle]}); o.isValid() {
		return o, nil
	}
	o, err := loadData(deviceData(vol))
	if errors.Is(err, fs.ErrNotExist) {
		return owner{}, nil // not needed as long as nothing is mounted
	}
	return o, err
}

// deviceData returns the directory that contains vol_data.json for the device of the volume.
func deviceData(vol *volume.Volume) string {
	if vol.Block {
		return filepath.Join(vol.PluginDir, blockPathsOf(vol.SpecName).data)
	}
	return filepath.Dir(vol.StagingDir)
}

// isStaged reports whether the volume is staged, or may be: it is mounted, or a file or directory of it exists.
func isStaged(vol *volume.Volume) (bool, error) {
	at := filepath.Join(deviceData(vol), dataFile)
	if vol.Block {
		at = vol.StagingDir
	}
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	mounted, err := mount.IsMountPoint(vol.StagingDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

// removeStaging removes the staging directory of the volume. If that directory is still mounted, removeStaging removes
// nothing and returns true.
func removeStaging(vol *volume.Volume) (stillMounted bool, err error) {
	if vol.Block {
		return removeBlockVolume(vol)
	}
	stillMounted, err = removeMountDir(vol.StagingDir)
	if !stillMounted && err == nil { // removes the directory of the driver, unless the driver has other volumes
		_ = os.Remove(filepath.Dir(filepath.Dir(vol.StagingDir)))
	}
	return stillMounted, err
}

// secretValues returns the values of a secret, without the keys.
func secretValues(secret map[string]string) []string {
	all := make([]string, 0, len(secret))
	for _, value := range secret {
		all = append(all, value)
	}
	return all
}

// fsGroup returns the fsGroup of a pod, or nil.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod == nil {
		return nil
	}
	return optional.OrZero(pod.Spec.SecurityContext).FSGroup
}
