// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// ImageSource makes the image of a container present on the node.
type ImageSource interface {
	// Ensure returns the image of the container once it is present on the node. It may take as long as an image pull, and returns
	// when ctx ends. If the error is a *podstatus.StartError, it sets the waiting reason of the container's status. sandbox is
	// the config of the pod's sandbox, and must not be changed.
	Ensure(ctx context.Context, pod *corev1.Pod, container *corev1.Container, sandbox *cri.SandboxConfig) (cri.Image, error)
}

// ImageHolder is an optional interface of an [ImageSource]: it prevents the removal of an image that is about to be used. [Images] implements it.
type ImageHolder interface {
	// Hold prevents the removal of an image until release is called. image is its name in the container. The Reconciler calls
	// Hold before Ensure. It calls release once the container is created, or could not be created. release may be called more
	// than once.
	Hold(image string) (release func())
}

// Images is an [ImageSource] that pulls images with the pull secrets of the pod. It implements [ImageHolder].
type Images struct {
	Puller  *images.Puller
	Objects Objects // the source of the secrets; nil: images are pulled without secrets
}

var (
	_ ImageSource = Images{}
	_ ImageHolder = Images{}
)

// Hold prevents the removal of an image by garbage collection until release is called.
func (i Images) Hold(image string) (release func()) { return i.Puller.Hold(image) }

// Ensure returns the image of the container, and pulls it if its pull policy requires this. As in the kubelet, a pull secret
// that cannot be read is skipped, because the image may be present or public. If the pull then fails, the error includes
// that of the secret.
func (i Images) Ensure(ctx context.Context, pod *corev1.Pod, container *corev1.Container, sandbox *cri.SandboxConfig) (cri.Image, error) {
	secrets, secretErr := i.readPullSecrets(ctx, pod)
	image, err := i.Puller.Ensure(ctx, images.Request{
		Pod: credential.Pod{
			UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: pod.Spec.ServiceAccountName,
		},
		Container: container.Name, Image: container.Image, Policy: images.Policy(container.ImagePullPolicy), RuntimeHandler: sandbox.RuntimeHandler,
		Annotations: pod.Annotations, Secrets: secrets, Sandbox: sandbox,
	})
	if e, ok := errors.AsType[*images.Error](err); ok {
		cause := e.Err
		if secretErr != nil {
			cause = fmt.Errorf("%w (not tried: %w)", cause, secretErr)
		}
		failed := &podstatus.StartError{Reason: e.Reason, Err: cause}
		if e.Reason == images.ReasonImagePullBackOff {
			failed.Retry = e.Retry // an earlier retry would replace ImagePullBackOff in the status, as it does not in the kubelet
		}
		return cri.Image{}, failed
	}
	return image, err
}

// secretsTimeout limits the time to read all pull secrets of a pod.
const secretsTimeout = 10 * time.Second

// readPullSecrets returns the pull secrets of the pod that can be read, and the first error except for missing ones.
func (i Images) readPullSecrets(ctx context.Context, pod *corev1.Pod) (found []credential.Secret, firstErr error) {
	if i.Objects == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretsTimeout)
	defer cancel()
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue // an API server accepts an empty name
		}
		s, err := i.Objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			if firstErr == nil && !errors.Is(err, fs.ErrNotExist) {
				firstErr = err
			}
			continue
		}
		secret := credential.Secret{Object: credential.Object{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name}}
		switch s.Type {
		case corev1.SecretTypeDockerConfigJson:
			secret.Data = s.Data[corev1.DockerConfigJsonKey]
		case corev1.SecretTypeDockercfg:
			secret.Format, secret.Data = credential.Dockercfg, s.Data[corev1.DockerConfigKey]
		default:
			continue
		}
		found = append(found, secret)
	}
	return found, firstErr
}

// newDefaultImages returns the ImageSource for a nil Options.Images, or nil if the runtime does not implement [cri.Images]
// and [cri.Puller].
func newDefaultImages(runtime cri.Runtime, objects Objects, logger *slog.Logger) ImageSource {
	store, ok := runtime.(cri.Images)
	puller, pulls := runtime.(cri.Puller)
	if !ok || !pulls {
		return nil
	}
	p, err := images.New(store, puller, images.Options{Logger: logger})
	if err != nil {
		panic(err) // impossible with these options
	}
	return Images{Puller: p, Objects: objects}
}
