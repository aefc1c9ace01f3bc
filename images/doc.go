// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package images makes container images available on a node: it pulls them according to the pull policy with matching
// credentials, backs off after failures, and checks which pods may use an existing image. It removes no images. It knows pods
// only by name; the caller passes the contents of their pull secrets.
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
//	e, ok := errors.AsType[*images.Error](err) // show e.Reason in the status, and retry at e.Retry
//
// A pull waits for one of Options.Parallel pull slots and for the rate limit. It tries the credentials of the pod's secrets, then
// those of Options.Providers. Concurrent requests for the same image with the same credentials share one pull.
//
// # Hung pulls
//
// A pull that takes longer than Options.SlowAfter releases its pull slot and continues, so that hung pulls cannot occupy all
// slots. The number of pulls never exceeds the number of pods that request one. A pull without progress for Options.PullTimeout,
// or longer than Options.PullLimit in total, is stopped with the reason ErrImagePull and a back-off.
//
// The CRI does not report the progress of pulls: this package measures the growth of the image file systems. This is imprecise,
// so the default limits are long; see DECISIONS.md.
//
// Every other call has a timeout: two minutes for the runtime, five for credential providers. A call that has not returned 5 s
// later is abandoned: it fails, and is refused until it has returned. With 100 abandoned calls all calls are refused.
//
// # Access and removal
//
// An image pulled with the secret of one pod must not be usable by a pod without it, although it is on the disk (KEP-2535).
// Options.Records is the directory with the records of pulls and their credentials, in the kubelet's format
// (kubelet.config.k8s.io/v1beta1), so that a node can switch between agents. [VerifyPolicy] selects the images whose records are
// checked. A pod without access according to the records pulls the image again, which proves its access.
//
// [Puller.Hold] protects an image until its container is created. A component that removes images, such as package gc, calls
// [Puller.Claim] right before a removal, [Puller.HasPullRecord] to learn whether a registry has the image, and [Puller.Prune]
// afterwards to remove stale records.
//
// # Concurrency and errors
//
// All methods are safe for concurrent use. A pull runs in the call that requested it and ends with its context; another call that
// waits for the same image then continues the pull.
//
// An [*Error] has the reason that users see in the status of a container, for example ErrImagePull, and the time of the next
// attempt. If ctx is cancelled, the error is [context.Canceled] and starts no back-off. No error or log contains a password.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/images of Kubernetes 1.37 with its pullmanager. DIFFERENCES.md has all differences; the main ones:
//
//   - Up to five images are pulled concurrently; the kubelet's default is one.
//   - A pull that exceeds the rate limit waits up to Options.LimitWait; in the kubelet it fails at once and backs off.
//   - A slow pull releases its pull slot, and a pull without progress is stopped; see Options.SlowAfter and PullTimeout.
//   - Without Options.Records, access to images is not verified.
//
// Test kit: package critest has a runtime with images and a simulated registry.
package images
