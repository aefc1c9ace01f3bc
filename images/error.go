// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images/credential"
)

// The reasons of an [Error], as they stand in the status of a container.
// Source: pkg/kubelet/images/types.go, k8s.io/cri-api/pkg/errors.
const (
	ReasonErrImagePull              = "ErrImagePull"
	ReasonImagePullBackOff          = "ImagePullBackOff"
	ReasonErrImageNeverPull         = "ErrImageNeverPull"
	ReasonImageInspectError         = "ImageInspectError"
	ReasonInvalidImageName          = "InvalidImageName"
	ReasonRegistryUnavailable       = "RegistryUnavailable"
	ReasonSignatureValidationFailed = "SignatureValidationFailed"
)

// Error is why an image is not there.
type Error struct {
	Reason string
	Err    error     // its text is the message in the container's status
	Retry  time.Time // before then nothing but the same is to be expected; zero where time does not help
}

// Error returns "Reason: cause".
func (e *Error) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// message is a cause with a text of its own. It is no wrapper: the text of what caused it may hold a password.
type message struct {
	text   string
	causes []error
}

func (m *message) Error() string { return m.text }

// Is finds what errors.Is finds in the causes.
func (m *message) Is(target error) bool {
	return slices.ContainsFunc(m.causes, func(err error) bool { return errors.Is(err, target) })
}

// saying returns a message that has the name of an image in it, in the words that users of the kubelet know.
func saying(cause error, before, image, after string) error {
	return &message{text: before + strconv.Quote(image) + after, causes: []error{cause}}
}

func inspectError(image string, err error) *Error {
	return &Error{
		Reason: ReasonImageInspectError, Err: saying(err, "Failed to inspect image ", image, ": "+err.Error()),
	}
}

// minSecret is how long a password is for it to be cut out of a text. What a shorter one would leave is no text.
const minSecret = 4

// pullError makes one error of those that the credentials led to. The runtime's words decide about the reason.
func pullError(image string, causes []error, tried []credential.Credential) *Error {
	var texts []string
	for _, err := range causes {
		if e, ok := errors.AsType[*cri.Error](err); ok {
			err = e.Err // without the name of the call, which is not the runtime's
		}
		text := err.Error()
		for _, c := range tried {
			if len(c.Password) >= minSecret {
				text = strings.ReplaceAll(text, c.Password, "[password]")
			}
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, ", ")
	if len(texts) > 1 {
		text = "[" + text + "]"
	}
	reason := ReasonErrImagePull
	failed := "image pull failed for " + image + " because "
	if rest, ok := strings.CutPrefix(text, ReasonRegistryUnavailable); ok {
		reason, text = ReasonRegistryUnavailable, failed+"the registry is unavailable"+rest
	} else if rest, ok := strings.CutPrefix(text, ReasonSignatureValidationFailed); ok {
		reason, text = ReasonSignatureValidationFailed, failed+"the signature validation failed"+rest
	}
	return &Error{Reason: reason, Err: &message{text: text, causes: causes}}
}
