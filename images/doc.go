// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package images makes the image of a container present on the node: by the pull policy, with the credentials that
// match, with a back-off after a failure, and only for pods that may use it. It removes no image, and knows pods by name
// only; what a pod's pull secrets contain is handed to it.
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
// A pull waits for one of Options.Parallel pull slots, then for the rate limit, both first come, first served, and tries
// the credentials one after the other: those of the pod's secrets, then those of Options.Providers. Without any it is an
// anonymous pull. Pods that want the same image at the same time with the same credentials share one pull.
//
// # Pulls that hang
//
// A pull that takes longer than Options.SlowAfter releases its pull slot and goes on, so that hung pulls cannot take all
// slots; there are never more pulls than pods that want one. A pull that makes no progress for Options.PullTimeout, or
// takes longer than Options.PullLimit in all, is stopped. That is an ErrImagePull like any other, which back-off follows.
//
// The CRI reports no progress of a pull. What can be seen is whether the image file systems grow, and that is coarse:
// containerd counts a layer when it is unpacked, not while it is fetched, and growth cannot be told apart by pulls. So a
// pull may be taken for one that makes progress because another does, up to PullLimit; and one whose single layer takes
// longer than PullTimeout to fetch is stopped and tried again, where the runtime resumes it if it can. That is why the
// defaults are long. Runtimes look closer: containerd's image_pull_progress_timeout is 5 minutes by default, and CRI-O's
// pull_progress_timeout is to be set.
//
// Every other call has a deadline too: two minutes for the runtime, five for a provider of credentials. A call that does
// not return within 5 s of its deadline is abandoned: its caller gets an error, the same call is not made again before it
// has returned, and with 100 of them outstanding no call is made. An image that an abandoned pull brings in the end is
// recorded as what it is.
//
// # Who may use an image
//
// An image that one pod has pulled with a secret is not for a pod without one, though it is on the disk (KEP-2535).
// What was pulled with which secret is recorded in the directory Options.Records, in the files and the format of the
// kubelet (kubelet.config.k8s.io/v1beta1), so that a node can change agents. [Verify] says for which images the records
// are looked up. A pod that may not use the image pulls it, to show that it may.
//
// # Beside somebody who removes images
//
// [Puller.Hold] keeps an image from before Ensure until its container is created. Whoever removes images, such as package gc, asks
// [Puller.Claim] right before each removal, and [Puller.Pulled] whether an image comes from a registry; afterwards [Puller.Prune]
// removes the records of what is gone. An Ensure that finds an image which is being removed waits, and pulls it again.
//
// # Concurrency
//
// All methods may be called from anywhere. A pull is made by the call that wants it, and ends when the context of that
// call does; then another call that waits for the same image takes over. The goroutines of a call end with it, but for
// that of an abandoned call, which ends when the runtime returns.
//
// # Errors
//
// An [*Error] has the reason that users know from the status of a container, such as ErrImagePull, and the time to come
// back. When ctx is cancelled the error is [context.Canceled], no *Error, and does not count as a failure of the image.
// Passwords are in no error and no log, also when the runtime's own error contains one.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/images of Kubernetes 1.37, with its pullmanager. DIFFERENCES.md has the whole list. What a
// user has to know:
//
//   - Five images are pulled at once; the kubelet pulls one unless told otherwise.
//   - A pull that comes too early for the rate limit waits, up to Options.LimitWait; in the kubelet it fails into back-off.
//   - A slow pull releases its pull slot, and one without progress is stopped; see Options.SlowAfter and PullTimeout.
//   - A pull secret that cannot be read is left out, and named in the error if the pull fails.
//   - Without Options.Records nothing is verified.
//
// # When not to use it
//
// To decide which images go, which is for package gc, or for a runtime without images, such as package process.
//
// # Test kit
//
// Package critest has a runtime with images; its Options.Pull is the registry.
package images
