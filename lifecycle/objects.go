// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// Objects returns the config maps, secrets and services that pods refer to. The caller does not write to the results. The error of an object
// that does not exist wraps fs.ErrNotExist; after any other error it is unknown whether the object exists, and the pod waits. Package objects
// has an implementation in memory and one on a directory.
type Objects interface {
	// ConfigMap returns a config map.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret, with all its content in Data.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services returns all services of a namespace, in any order. A static pod is started without services if the error wraps
	// [ErrServicesUnknown], because the API server itself may be a static pod.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}

// ErrServicesUnknown is wrapped by the error of [Objects].Services as long as no API server has listed the services.
var ErrServicesUnknown = podenv.ErrServicesUnknown //nolint:gochecknoglobals // an error; package podenv, which is internal, compares with it
