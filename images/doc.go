// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package images makes container images available on a node: it pulls them according to the pull policy with matching
// credentials, backs off after failures, and checks which pods may use an existing image. It removes no images. It knows
// pods only by name; the caller passes the contents of their pull secrets.
//
// # Model
//
// Call [Puller.Ensure] before the creation of a container and before each retry:
//
//	puller, err := images.New(client, client, images.Options{
//		Records:   "/var/lib/agent/image_manager",
//		Providers: []credential.Provider{credential.Files{"/var/lib/agent/config.json"}, plugins},
//	})
//	image, err := puller.Ensure(ctx, images.Request{
//		Pod: pod, Image: "ghcr.io/team/app:v1", Policy: images.PullIfNotPresent, Secrets: secrets, Sandbox: sandbox,
//	})
//	if e, ok := errors.AsType[*images.Error](err); ok {
//		status.Waiting(e.Reason, e.Err.Error()) // and retry at e.Retry
//	}
//
// A pull first waits for one of Options.Parallel pull slots and then for the rate limit, both in the order of arrival. It
// tries the credentials from the pod's secrets, then those of Options.Providers. Without credentials it is anonymous.
// Concurrent requests for the same image with the same credentials share one pull.
//
// # Hung pulls
//
// A pull that takes longer than Options.SlowAfter releases its pull slot and continues, so that hung pulls cannot occupy
// all slots. The number of pulls never exceeds the number of pods that request one. A pull without progress for
// Options.PullTimeout, or longer than Options.PullLimit in total, is stopped with the reason ErrImagePull and a back-off.
//
// The CRI does not report the progress of pulls. This package measures the growth of the image file systems, which is
// imprecise: containerd counts a layer when it is unpacked, not while it is downloaded, and growth cannot be attributed to
// a pull. A hung pull may therefore last up to PullLimit while others make progress, and a pull is stopped if the download
// of one layer takes longer than PullTimeout; its next attempt resumes if the runtime supports that. The defaults are long
// for this reason. Runtimes detect hung pulls more precisely: containerd's image_pull_progress_timeout is 5 minutes by
// default; CRI-O's pull_progress_timeout must be set.
//
// All other calls have timeouts too: two minutes for the runtime, five for credential providers. A call that has not
// returned 5 s after its timeout is abandoned: its caller gets an error, the same call is refused until it has returned, and
// with 100 abandoned calls all calls are refused. If an abandoned pull succeeds later, its image is still recorded.
//
// # Access to images
//
// An image pulled with the secret of one pod must not be usable by a pod without it, although it is on the disk
// (KEP-2535). Options.Records is the directory with the records of pulls and their credentials, in the kubelet's format
// (kubelet.config.k8s.io/v1beta1), so that a node can switch between agents. [VerifyPolicy] selects the images whose records
// are checked. A pod without access according to the records pulls the image again, which proves its access.
//
// # Removal of images
//
// [Puller.Hold] protects an image from before Ensure until its container is created. A component that removes images, such as
// package gc, calls [Puller.Claim] right before each removal, [Puller.HasPullRecord] to find out whether an image comes from a
// registry, and [Puller.Prune] afterwards to remove the records of images that no longer exist. An Ensure that finds an image
// during its removal waits and pulls it again.
//
// # Concurrency
//
// All methods are safe for concurrent use. A pull runs in the call that requested it and ends with the context of that call;
// then another call that waits for the same image continues it. The goroutines of a call end with it, except for
// abandoned calls, which end when the runtime returns.
//
// # Errors
//
// An [*Error] has the reason that users see in the status of a container, for example ErrImagePull, and the time of the next
// attempt. If ctx is cancelled, the error is [context.Canceled], not an *Error, and starts no back-off. No error or log
// contains a password, even if the runtime's own error does.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/images of Kubernetes 1.37 with its pullmanager. DIFFERENCES.md has the full list. The most
// important differences:
//
//   - Up to five images are pulled concurrently; the kubelet's default is one.
//   - A pull that exceeds the rate limit waits up to Options.LimitWait; in the kubelet it fails at once and backs off.
//   - A slow pull releases its pull slot, and a pull without progress is stopped; see Options.SlowAfter and PullTimeout.
//   - An unreadable pull secret is skipped, and named in the error if the pull fails.
//   - Without Options.Records, access to images is not verified.
//
// # When not to use it
//
// Use package gc to remove images. Runtimes without images, such as package process, do not need this package.
//
// # Test kit
//
// Package critest has a runtime with images; its Options.Pull simulates the registry.
package images
