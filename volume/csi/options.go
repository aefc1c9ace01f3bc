// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/volume"
)

// Drivers reads CSIDriver objects. If an object does not exist, the error wraps [fs.ErrNotExist]; after any other error it is
// unknown whether it exists. The caller does not modify the result. Package objects has implementations.
type Drivers interface {
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
}

// Secrets reads the secrets that volumes refer to. All values of a returned secret are in Data, none in StringData. Package
// objects has implementations.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Attachments reads VolumeAttachment objects. If an object does not exist, the error wraps [fs.ErrNotExist]; after any other
// error it is unknown whether it exists.
type Attachments interface {
	VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
}

// NodeUpdater writes the drivers that are registered on this node to objects of the cluster: see [NodeInfo].
type NodeUpdater interface {
	// InstallDriver publishes a driver that is registering. After four errors in a row the registration fails.
	InstallDriver(ctx context.Context, info NodeInfo) error
	// UninstallDriver removes a driver that was deregistered.
	UninstallDriver(ctx context.Context, driver string) error
}

// Options configure a [Plugin].
type Options struct {
	// Registry is the directory with the registration sockets of drivers, such as /var/lib/kubelet/plugins_registry. Required.
	Registry string
	NodeName string // name of the Node in VolumeAttachment objects; may be empty if Attachments is nil

	Drivers     Drivers            // nil: no CSIDriver object exists, and inline volumes are refused
	Secrets     Secrets            // nil: volumes that refer to a secret fail
	Tokens      volume.TokenIssuer // for drivers with tokenRequests; nil: their volumes fail
	Attachments Attachments        // nil: volumes need not be attached
	NodeUpdater NodeUpdater        // nil: drivers are not published in the cluster

	Timeout time.Duration // of all driver calls of one operation together; zero means 2 min, as in the kubelet
	Logger  *slog.Logger  // nil discards
	Hooks   Hooks
}

// Hooks are callbacks of a [Plugin]; any may be nil. They may be called concurrently, and must not block.
type Hooks struct {
	// CallCompleted reports a completed call: driver name, RPC such as NodePublishVolume, duration, and nil or a [*CallError].
	CallCompleted func(driver, method string, took time.Duration, err error)
}

// defaultTimeout is the timeout of the kubelet for CSI calls (csiTimeout in pkg/volume/csi).
const defaultTimeout = 2 * time.Minute

// validate returns an error for the first invalid field. It replaces zero values of optional fields by the defaults.
func (o *Options) validate() error {
	switch {
	case o.Registry == "":
		return errors.New("csi: field Registry is empty: it is the directory in which drivers register themselves")
	case !filepath.IsAbs(o.Registry):
		return fmt.Errorf("csi: field Registry: %q is no absolute path", o.Registry)
	case o.Timeout < 0:
		return fmt.Errorf("csi: field Timeout: %v is negative", o.Timeout)
	case o.Timeout == 0:
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
