// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
)

// A registry refuses connections, and Ensure backs off.
func ExamplePuller_Ensure() {
	rt := critest.New(critest.Options{
		Images: []cri.Image{},
		Pull: func(context.Context, cri.ImageSpec, *cri.Auth) (cri.Image, error) {
			return cri.Image{}, errors.New("connection refused")
		},
	})
	puller, err := images.New(rt, rt, images.Options{})
	if err != nil {
		panic(err)
	}
	for range 2 {
		_, err := puller.Ensure(context.Background(), images.Request{
			Pod: credential.Pod{UID: "u1"}, Image: "ghcr.io/team/app:v1",
		})
		if e, ok := errors.AsType[*images.Error](err); ok {
			fmt.Println(e.Reason)
			fmt.Println(" ", e.Err)
			fmt.Println("  in", time.Until(e.Retry).Round(time.Second))
		}
	}
	// Output:
	// ErrImagePull
	//   connection refused
	//   in 10s
	// ImagePullBackOff
	//   Back-off pulling image "ghcr.io/team/app:v1": ErrImagePull: connection refused
	//   in 10s
}

// A controller reports pull failures to the user with the kubelet's reasons.
func ExampleError() {
	advise := func(err error) string {
		e, ok := errors.AsType[*images.Error](err)
		if !ok {
			return "the pod was deleted" // its context ended
		}
		switch e.Reason {
		case images.ReasonInvalidImageName, images.ReasonErrImageNeverPull:
			return "correct the pod"
		case images.ReasonSignatureValidationFailed:
			return "sign the image"
		case images.ReasonRegistryUnavailable, images.ReasonErrImagePull, images.ReasonImagePullBackOff:
			return "wait for the registry"
		default: // images.ReasonImageInspectError
			return "check the runtime"
		}
	}
	for _, text := range []string{"RegistryUnavailable: 503", "SignatureValidationFailed: no key", "no route to host"} {
		runtime := critest.New(critest.Options{
			Images: []cri.Image{},
			Pull: func(context.Context, cri.ImageSpec, *cri.Auth) (cri.Image, error) {
				return cri.Image{}, errors.New(text)
			},
		})
		puller, err := images.New(runtime, runtime, images.Options{})
		if err != nil {
			panic(err)
		}
		_, err = puller.Ensure(context.Background(), images.Request{Pod: credential.Pod{UID: "u1"}, Image: "ghcr.io/team/app:v1"})
		fmt.Println(advise(err))
	}
	// Output:
	// wait for the registry
	// sign the image
	// wait for the registry
}
