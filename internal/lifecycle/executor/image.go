// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

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
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// ImageSource makes the image of a container present on the node. It may take as long as a pull takes; it ends
// when ctx does. An error that is a [*StartError] names the reason that the container's status shows.
type ImageSource interface {
	Ensure(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig) (cri.Image, error)
}

// ImageHolder is an [ImageSource] that keeps an image on the node, under the name that a container has it by, from before it is
// ensured until release is called, when the container was created or could not be. Release may be repeated. [Images] is one; an
// ImageSource need not be.
type ImageHolder interface {
	Hold(image string) (release func())
}

// StartError is why a container was not started, with the reason for its status.
type StartError struct {
	Reason string // such as ErrImagePull or RunContainerError
	Err    error
	Retry  time.Time // before then nothing but the same is to be expected; zero: at any time
}

// Error returns "Reason: cause".
func (e *StartError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Images is an [ImageSource] that pulls, with the secrets of the pod.
type Images struct {
	Puller  *images.Puller
	Objects podenv.Objects // where the secrets are; nil: there are none
}

var (
	_ ImageSource = Images{}
	_ ImageHolder = Images{}
)

// Hold keeps an image from whoever removes images, until release is called.
func (i Images) Hold(image string) (release func()) { return i.Puller.Hold(image) }

// Ensure returns the image of a container, which it pulls where its policy says so. As in the kubelet, a secret that
// cannot be had is left out: the image may be there, or open to everybody. If it is not, the error names the secret.
func (i Images) Ensure(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig) (cri.Image, error) {
	secrets, missing := i.secrets(ctx, pod)
	image, err := i.Puller.Ensure(ctx, images.Request{
		Pod: credential.Pod{
			UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: pod.Spec.ServiceAccountName,
		},
		Container: c.Name, Image: c.Image, Policy: images.Policy(c.ImagePullPolicy), RuntimeHandler: sandbox.RuntimeHandler,
		Annotations: pod.Annotations, Secrets: secrets, Sandbox: sandbox,
	})
	if e, ok := errors.AsType[*images.Error](err); ok {
		cause := e.Err
		if missing != nil {
			cause = fmt.Errorf("%w (not tried: %w)", cause, missing)
		}
		failed := &StartError{Reason: e.Reason, Err: cause}
		if e.Reason == images.ReasonImagePullBackOff {
			failed.Retry = e.Retry // not before: the status is to say that there is a back-off, as the kubelet's does
		}
		return cri.Image{}, failed
	}
	return image, err
}

// secretsTimeout is how long all secrets of a pod together are waited for.
const secretsTimeout = 10 * time.Second

// secrets returns the pull secrets of a pod that can be had. The error is the first of those that exist and cannot.
func (i Images) secrets(ctx context.Context, pod *corev1.Pod) (found []credential.Secret, missing error) {
	if i.Objects == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretsTimeout)
	defer cancel()
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue // an API server takes it
		}
		s, err := i.Objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			if missing == nil && !errors.Is(err, fs.ErrNotExist) {
				missing = err
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
	return found, missing
}

// DefaultImages returns what makes the images of a runtime present where nothing else is given, or nil where it has none.
func DefaultImages(rt cri.Runtime, objects podenv.Objects, logger *slog.Logger) ImageSource {
	store, ok := rt.(cri.Images)
	puller, pulls := rt.(cri.Puller)
	if !ok || !pulls {
		return nil
	}
	p, err := images.New(store, puller, images.Options{Logger: logger})
	if err != nil {
		panic(err) // it is about options that are not set
	}
	return Images{Puller: p, Objects: objects}
}
