// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// Objects provides the config maps, secrets and services that pods refer to. The caller does not change the returned objects. If
// an object does not exist, the error wraps fs.ErrNotExist. After any other error the object may exist, and the pod waits for it.
// Package objects has an implementation in memory and one that reads a directory.
type Objects interface {
	// ConfigMap returns a config map.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret, with all its content in Data.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services returns all services of a namespace, in any order. If the error wraps [ErrServicesUnknown], a static pod starts
	// without services, because the API server itself may be a static pod.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}

// ErrServicesUnknown is wrapped by the error of [Objects].Services while the services have not been listed at the API server yet.
var ErrServicesUnknown = podenv.ErrServicesUnknown //nolint:gochecknoglobals,nolintlint // an error; package podenv, which is internal, compares with it
