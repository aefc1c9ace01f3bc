// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import "github.com/seed81659283/nodeagent/internal/expand"

// What a container can be given, which is what Linux lets a process have. Each is an error of the field that asks for
// more.
const (
	MaxArgument  = expand.MaxArgument  // of an argument, or of a variable as NAME=value, in bytes with the terminating zero
	MaxArguments = expand.MaxArguments // of all together, each with 8 bytes for its pointer; set twice counts twice
)
