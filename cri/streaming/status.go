// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// status is the result of a session as the client receives it on the error stream. It has the fields of metav1.Status that
// kubectl reads.
type status struct {
	Status  string   `json:"status,omitempty"`
	Message string   `json:"message,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Details *details `json:"details,omitempty"`
	Code    int32    `json:"code,omitempty"`
}

type details struct {
	Causes []cause `json:"causes,omitempty"`
}

type cause struct {
	Type    string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

const success, failure = "Success", "Failure"

// exitStatus returns the status that a client receives after its command has exited with this code.
func exitStatus(cmd []string, code int) status {
	if code == 0 {
		return status{Status: success}
	}
	return status{
		Status: failure, Reason: "NonZeroExitCode",
		Message: fmt.Sprintf("command terminated with non-zero exit code: error executing command %v, exit code %d", cmd, code),
		Details: &details{Causes: []cause{{Type: "ExitCode", Message: strconv.Itoa(code)}}},
	}
}

// errorStatus returns the status that a client receives if its session fails with this error.
func errorStatus(err error) status {
	return status{
		Status: failure, Reason: "InternalError", Code: http.StatusInternalServerError,
		Message: "Internal error occurred: " + err.Error(),
	}
}

// hookError returns the error for Hooks.SessionFinished. It is nil for a command that has exited, even with a nonzero code.
func (s status) hookError() error {
	if s.Status == success || s.Reason == "NonZeroExitCode" {
		return nil
	}
	return errors.New(s.Message)
}

// encode returns the bytes for the error stream: JSON since protocol version 4, before that only the message of a failure.
func (s status) encode(asJSON bool) []byte {
	if !asJSON {
		if s.Status == success {
			return nil
		}
		return []byte(s.Message)
	}
	b, err := json.Marshal(s)
	if err != nil { // cannot happen for strings and numbers
		return []byte(s.Message)
	}
	return b
}

// parseStatus parses the status that the runtime sent on the error stream.
func parseStatus(text []byte) (status, error) {
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("status of the runtime %.100q: %w", text, err)
	}
	if s.Status != success && s.Status != failure {
		return s, fmt.Errorf("status of the runtime %.100q is neither Success nor Failure", text)
	}
	return s, nil
}
