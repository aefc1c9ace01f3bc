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

// operation is what the calls about one volume share.
type operation struct {
	client *client
	spec   volumeSpec
	object object
	can    capabilities
}

// begin finds out what is to be known for an operation on a volume. Nothing has been done when it fails. Whoever gets an operation
// closes it.
func (p *Plugin) begin(ctx context.Context, v *volume.Volume) (op *operation, err error) {
	op = &operation{}
	if op.spec, err = specOf(v); err != nil {
		return nil, err
	}
	if op.client, err = p.open(ctx, op.spec.driver); err != nil {
		return nil, err
	}
	if op.object, err = p.object(ctx, op.spec.driver); err == nil {
		op.can, err = op.client.capabilities(ctx)
	}
	if err != nil {
		op.client.close()
		return nil, err
	}
	return op, nil
}

// undone returns the error of an operation that has done nothing. Where nothing is there of an earlier one, nothing is left.
func undone(v *volume.Volume, there func(v *volume.Volume) (bool, error), err error) error {
	if v.Update || v.Recovered {
		return err
	}
	if is, thereErr := there(v); is || thereErr != nil {
		return err
	}
	return &volume.FinalError{Err: err}
}

// failed returns the error of a call that makes something. If it has certainly failed, clean removes what was made for it.
func failed(v *volume.Volume, err error, clean func() (left bool, err error)) error {
	call, ok := errors.AsType[*CallError](err)
	if !ok || !call.isFinal() || v.Update || v.Recovered {
		return err
	}
	if left, cleanErr := clean(); left || cleanErr != nil {
		return errors.Join(err, cleanErr)
	}
	return &volume.FinalError{Err: err}
}

// Device returns what the pods on this node share of a volume with a claim: where it is staged, or its block device.
func (p *Plugin) Device(ctx context.Context, v volume.Volume) (volume.Device, error) {
	if v.PV == nil {
		return volume.Device{}, nil // it is of one pod alone
	}
	s, err := specOf(&v)
	if err != nil {
		return volume.Device{}, err
	}
	d := volume.Device{
		Name: s.driver + "^" + s.handle, Dir: stagingDir(s.driver, s.handle), Data: map[string]string{keyDriver: s.driver, keyHandle: s.handle},
	}
	if s.block {
		if err := checkBlockName(v.Spec); err != nil {
			return volume.Device{}, err
		}
		paths := blockPathsOf(v.Spec)
		d.Dir, d.MapDir = paths.staging, paths.dev
	}
	if p.opts.Attachments != nil {
		o, err := p.object(ctx, s.driver)
		if err != nil {
			return volume.Device{}, err
		}
		d.Attachable = o.attach
	}
	return d, nil
}

// Stage makes a volume ready on the node, if its driver does that. The data of the volume are on disk before.
func (p *Plugin) Stage(ctx context.Context, v volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	op, err := p.begin(ctx, &v)
	if err != nil {
		return undone(&v, isStaged, err)
	}
	defer op.client.close()
	u, err := p.stageUse(ctx, op, &v)
	if err != nil {
		return undone(&v, isStaged, err)
	}
	if op.spec.block { // which the kubelet knows by its data, staged or not
		if err := p.saveBlock(op, &v); err != nil {
			return err
		}
	}
	if !op.can[stages] {
		return nil
	}
	if err := os.MkdirAll(v.StagingDir, 0o750); err != nil {
		return err
	}
	if !op.spec.block {
		data := map[string]string{keyHandle: op.spec.handle, keyDriver: op.spec.driver}
		if err := saveData(filepath.Dir(v.StagingDir), labeled(data, &v)); err != nil {
			return err
		}
	}
	_, err = call(ctx, op.client, "NodeStageVolume", op.client.node.NodeStageVolume, op.spec.stageRequest(v.StagingDir, u), u.hide...)
	if err != nil {
		return failed(&v, err, func() (bool, error) { return removeStaging(&v) })
	}
	return nil
}

// stageUse collects what a driver is told when it stages a volume.
func (p *Plugin) stageUse(ctx context.Context, op *operation, v *volume.Volume) (u use, err error) {
	u.can = op.can
	if u.publishContext, err = p.publishContext(ctx, &op.spec, &op.object); err != nil {
		return u, err
	}
	if !op.can[stages] {
		return u, nil
	}
	if u.secrets, err = p.secret(ctx, "nodeStageSecretRef", op.spec.stageSecret); err != nil {
		return u, err
	}
	u.hide = values(u.secrets)
	op.spec.mountOptions = mountOptions(&op.spec, v)
	if !op.spec.block && op.can[mountsGroup] {
		u.group = fsGroup(v.Pod)
	}
	return u, nil
}

// saveBlock writes the data of a block volume.
func (p *Plugin) saveBlock(op *operation, v *volume.Volume) error {
	dir := filepath.Join(v.PluginDir, blockPathsOf(v.Spec).data)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return saveData(dir, map[string]string{
		keySpec: v.Spec, keyHandle: op.spec.handle, keyDriver: op.spec.driver, keyNode: p.opts.NodeName,
		keyAttachment: attachmentName(op.spec.handle, op.spec.driver, p.opts.NodeName),
	})
}

// Unstage undoes Stage. Where neither data nor a mount are left there is nothing to be undone.
func (p *Plugin) Unstage(ctx context.Context, v volume.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	o, err := deviceOwner(&v)
	if err != nil {
		return err
	}
	staged, err := isStaged(&v)
	if err != nil {
		return err
	}
	if staged {
		if err := p.unstage(ctx, &v, o); err != nil {
			return err
		}
	}
	left, err := removeStaging(&v)
	if err == nil && left {
		err = fmt.Errorf("CSI driver %s says that it has unstaged volume %.256q, and %s is mounted still", o.driver, o.handle, v.StagingDir)
	}
	return err
}

// unstage has a driver unstage a volume, if it does that.
func (p *Plugin) unstage(ctx context.Context, v *volume.Volume, o owner) error {
	c, err := p.open(ctx, o.driver)
	if err != nil {
		return err
	}
	defer c.close()
	can, err := c.capabilities(ctx)
	if err != nil || !can[stages] {
		return err
	}
	_, err = call(ctx, c, "NodeUnstageVolume", c.node.NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: o.handle, StagingTargetPath: v.StagingDir})
	return err
}

// deviceOwner returns who has staged a volume: by the record, or else by its data.
func deviceOwner(v *volume.Volume) (owner, error) {
	if o := (owner{v.Device.Data[keyDriver], v.Device.Data[keyHandle]}); o.valid() {
		return o, nil
	}
	o, err := loadData(deviceData(v))
	if errors.Is(err, fs.ErrNotExist) {
		return owner{}, nil // which is not asked for, as long as nothing is mounted
	}
	return o, err
}

// deviceData returns the directory with the data of a device.
func deviceData(v *volume.Volume) string {
	if v.Block {
		return filepath.Join(v.PluginDir, blockPathsOf(v.Spec).data)
	}
	return filepath.Dir(v.StagingDir)
}

// isStaged reports whether a volume may be staged: its data are there (for a block volume its staging directory), or something is
// mounted where it is staged.
func isStaged(v *volume.Volume) (bool, error) {
	at := filepath.Join(deviceData(v), dataFile)
	if v.Block {
		at = v.StagingDir
	}
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	mounted, err := mount.IsMountPoint(v.StagingDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}

// removeStaging removes what was made for a volume to be staged, unless something is mounted there.
func removeStaging(v *volume.Volume) (left bool, err error) {
	if v.Block {
		return removeBlock(v)
	}
	left, err = removeMountDir(v.StagingDir)
	if !left && err == nil { // the directory of the driver goes with its last volume
		_ = os.Remove(filepath.Dir(filepath.Dir(v.StagingDir)))
	}
	return left, err
}

// values returns the values of a secret.
func values(secret map[string]string) []string {
	all := make([]string, 0, len(secret))
	for _, value := range secret {
		all = append(all, value)
	}
	return all
}

// fsGroup returns the group that the files of a pod's volumes belong to, or nil.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod == nil {
		return nil
	}
	return optional.OrZero(pod.Spec.SecurityContext).FSGroup
}
