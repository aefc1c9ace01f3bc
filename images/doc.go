// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package images makes the image of a container present on the node: by the pull policy, with the credentials that
// fit, with a back-off when it fails, and only for pods that may have it. It removes no image, and knows pods by name
// only; what a pod's pull secrets hold is handed to it.
//
// # Model
//
// [Puller.Ensure] is called before a container is created, and again whenever the container is tried again:
//
//	puller, err := images.New(client, client, images.Options{
//		Records:   "/var/lib/agent/image_manager",
//		Providers: []credential.Provider{credential.Files{"/var/lib/agent/config.json"}, plugins},
//	})
//	image, err := puller.Ensure(ctx, images.Request{
//		Pod: pod, Image: "ghcr.io/team/app:v1", Policy: images.PullIfNotPresent, Secrets: secrets, Sandbox: sandbox,
//	})
//	if e, ok := errors.AsType[*images.Error](err); ok {
//		status.Waiting(e.Reason, e.Err.Error()) // and come back at e.Retry
//	}
//
// A pull waits for one of Options.Parallel places, takes a token of the rate limit, and tries the credentials one
// after the other: those of the pod's secrets, then those of Options.Providers. Without any it pulls as anybody. Pods
// that want the same image at the same time with the same credentials share one pull.
//
// # Who may use an image
//
// An image that one pod has pulled with a secret is not for a pod without one, though it lies on the disk (KEP-2535).
// What was pulled with which secret is recorded in the directory Options.Records, in the files and the format of the
// kubelet (kubelet.config.k8s.io/v1beta1), so that a node can change agents. [Verify] says which images that is looked
// up for. A pod that may not have the image pulls it, to show that it may.
//
// # Concurrency
//
// All methods may be called from anywhere. There is no goroutine: a pull is made by the call that wants it, and ends
// when the context of that call does; then another call that waits for the same image takes over. A pull has no time
// limit of its own, as a slow network is no error: runtimes end one that makes no progress.
//
// # Errors
//
// An [*Error] has the reason that users know from the status of a container, such as ErrImagePull, and says when to
// come back. When ctx is cancelled the error is [context.Canceled], no *Error, and nothing is held against the image.
// Passwords are in no error and no log, also when the runtime's own words hold one.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/images of Kubernetes 1.37, with its pullmanager.
//
//   - Five images are pulled at once; the kubelet pulls one unless told otherwise. A pod whose context ends leaves the
//     queue.
//   - Pods that want the same with the same credentials share one pull, which runs for the sandbox of one of them and
//     costs one token of the rate limit. Each keeps its own back-off and is recorded with its own secret.
//   - A pull that was cancelled does not count as a failure, and during a back-off no credentials are looked up.
//   - A pull secret that cannot be read is left out, and named in the error if the pull fails. In the kubelet it is
//     the error.
//   - Images that need no verification whatever the records say, by policy or list, are used although the records
//     cannot be read; the kubelet pulls them.
//   - A pulled image is recorded under the ID that the runtime gives it when it is asked for it, not under the answer
//     of the pull, as that ID is what the image is found by.
//   - Without Options.Records nothing is verified.
//   - [Puller.Recover] finds the image of a record that a dead agent left also by its short name.
//
// # When not to use it
//
// To delete images, or for a runtime without images: see packages gc and process.
package images
