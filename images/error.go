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

// The reasons of an [Error], as in the status of a container. Source: pkg/kubelet/images/types.go, k8s.io/cri-api/pkg/errors.
const (
	ReasonErrImagePull              = "ErrImagePull"
	ReasonImagePullBackOff          = "ImagePullBackOff"
	ReasonErrImageNeverPull         = "ErrImageNeverPull"
	ReasonImageInspectError         = "ImageInspectError"
	ReasonInvalidImageName          = "InvalidImageName"
	ReasonRegistryUnavailable       = "RegistryUnavailable"
	ReasonSignatureValidationFailed = "SignatureValidationFailed"
)

// Error is the error of [Puller.Ensure] for an image that a pod cannot use.
type Error struct {
	Reason string
	Err    error     // its text is the message for the container status
	Retry  time.Time // earliest time of a useful retry: earlier calls of Ensure return this error; zero: no retry is useful
}

// Error returns "Reason: cause".
func (e *Error) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// maskedError is an error with a text of its own. It does not unwrap to its causes, because their texts may contain a password.
type maskedError struct {
	text   string
	causes []error
}

func (m *maskedError) Error() string { return m.text }

// Is reports whether a cause is target, as errors.Is does.
func (m *maskedError) Is(target error) bool {
	return slices.ContainsFunc(m.causes, func(err error) bool { return errors.Is(err, target) })
}

// newImageError returns an error whose text is prefix, the quoted image name and suffix. The text does not contain cause,
// but errors.Is finds it.
func newImageError(cause error, prefix, image, suffix string) error {
	return &maskedError{text: prefix + strconv.Quote(image) + suffix, causes: []error{cause}}
}

// newInspectError returns the error of Ensure for an image whose ImageStatus call has failed with err.
func newInspectError(image string, err error) *Error {
	return &Error{
		Reason: ReasonImageInspectError, Err: newImageError(err, "Failed to inspect image ", image, ": "+err.Error()),
	}
}

// minMaskedPassword is the least length of a password that is masked in error texts. Masking a shorter password would make texts
// unreadable.
const minMaskedPassword = 4

// newPullError returns the error for an image after all pulls have failed, with the passwords of the tried credentials
// masked.
func newPullError(image string, causes []error, tried []credential.Credential) *Error {
	var texts []string
	for _, err := range causes {
		if e, ok := errors.AsType[*cri.Error](err); ok {
			err = e.Err // without the name of the CRI call
		}
		text := err.Error()
		for _, c := range tried {
			if len(c.Password) >= minMaskedPassword {
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
	return &Error{Reason: reason, Err: &maskedError{text: text, causes: causes}}
}
