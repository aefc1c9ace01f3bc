// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/volume"
)

// findAttachment returns the VolumeAttachment of a volume, or nil if it needs none. If there is none yet, the error wraps
// fs.ErrNotExist.
func (p *Plugin) findAttachment(ctx context.Context, spec *volumeSpec, policy *driverPolicy) (*storagev1.VolumeAttachment, error) {
	if p.opts.Attachments == nil || !policy.attachRequired || spec.mode != storagev1.VolumeLifecyclePersistent {
		return nil, nil
	}
	name := attachmentName(spec.handle, spec.driver, p.opts.NodeName)
	a, err := p.opts.Attachments.VolumeAttachment(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("volume attachment %s of volume %.256q: %w", name, spec.handle, err)
	}
	return a, nil
}

// publishContext returns the attachment metadata from the driver's controller service, or nil for a volume that needs no
// attachment.
func (p *Plugin) publishContext(ctx context.Context, spec *volumeSpec, policy *driverPolicy) (map[string]string, error) {
	a, err := p.findAttachment(ctx, spec, policy)
	if a == nil || err != nil {
		return nil, err
	}
	return a.Status.AttachmentMetadata, nil
}

// isAttached reports whether a VolumeAttachment object reports the volume as attached. It returns an error if attaching has
// failed or the object is being deleted.
func isAttached(attachment *storagev1.VolumeAttachment) (bool, error) {
	switch {
	case attachment.DeletionTimestamp != nil:
		return false, errors.New("volume attachment is being deleted")
	case attachment.Status.Attached:
		return true, nil
	case attachment.Status.AttachError != nil:
		return false, errors.New(sanitizeText(attachment.Status.AttachError.Message, nil))
	}
	return false, nil
}

// WaitForAttach blocks until the volume is attached to the node, and returns the name of the VolumeAttachment, or "" if the
// driver needs no attachment. It returns an error if ctx ends or the attachment failed. It implements [volume.Attacher].
func (p *Plugin) WaitForAttach(ctx context.Context, vol volume.Volume) (string, error) {
	s, err := specOf(&vol)
	if err != nil {
		return "", err
	}
	again := backoff.Policy{First: 500 * time.Millisecond, Max: 10 * time.Second}
	for wait := again.First; ; wait = again.Next(wait) {
		o, err := p.readPolicy(ctx, s.driver)
		if err != nil {
			return "", err
		}
		a, err := p.findAttachment(ctx, &s, &o)
		switch {
		case err == nil && a == nil:
			return "", nil
		case err == nil:
			done, err := isAttached(a)
			if err != nil {
				return "", fmt.Errorf("volume attachment %s: %w", a.Name, err)
			}
			if done {
				return a.Name, nil
			}
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		if ctxErr := sleep.For(ctx, wait); ctxErr != nil {
			return "", errors.Join(fmt.Errorf("volume %.256q is not attached", s.handle), ctxErr)
		}
	}
}
