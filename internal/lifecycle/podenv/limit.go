// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import "github.com/seed81659283/nodeagent/internal/expand"

// Limits of Linux for the arguments and variables of a new process. Exceeding one is an error of the pod field.
const (
	MaxArgument  = expand.MaxArgument  // bytes of an argument, or of a variable as NAME=value, with the terminating zero
	MaxArguments = expand.MaxArguments // bytes of all arguments and variables, each with 8 bytes for its pointer; a redefined variable counts twice
)
