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

// Drivers is where CSIDriver objects are: what the cluster knows of drivers. One that does not exist is an error that wraps
// fs.ErrNotExist; any other error is that it cannot be known. What is returned is not changed. Package objects has some.
type Drivers interface {
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
}

// Secrets is where the secrets are that volumes name, with all of them in Data. Package objects has some.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Attachments is where VolumeAttachment objects are, which say what a controller has attached to the node. Errors are as of
// [Drivers].
type Attachments interface {
	VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
}

// Node is told of drivers, so that the cluster knows where volumes of theirs can be used: see [NodeInfo].
type Node interface {
	// Install says what a driver that was registered says of the node. A failure is tried again three times, and then the driver is
	// not registered.
	Install(ctx context.Context, info NodeInfo) error
	// Uninstall says that a driver is gone.
	Uninstall(ctx context.Context, driver string) error
}

// Options configure a [Plugin].
type Options struct {
	// Registry is the directory in which drivers register themselves, such as /var/lib/kubelet/plugins_registry. Required.
	Registry string
	NodeName string // as it is in VolumeAttachment objects; it may be empty where there are none

	Drivers     Drivers            // nil: there are none, and volumes without a claim are refused
	Secrets     Secrets            // nil: volumes that name one fail
	Tokens      volume.TokenIssuer // for drivers with tokenRequests; nil: volumes of theirs fail
	Attachments Attachments        // nil: nothing has to be attached to the node
	Node        Node               // nil: nobody wants to know

	Timeout time.Duration // of all calls of one operation; zero means 2 min, the kubelet's
	Logger  *slog.Logger  // nil discards
	Hooks   Hooks
}

// Hooks are called when something happens. Any may be nil. They may be called from several goroutines at the same time, and must
// not block.
type Hooks struct {
	// Call is a call of a driver that has ended, such as NodePublishVolume. The error is nil or a [*CallError].
	Call func(driver, method string, took time.Duration, err error)
}

// defaultTimeout is that of the kubelet (csiTimeout in pkg/volume/csi).
const defaultTimeout = 2 * time.Minute

// validate fills in what zero values mean.
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
