// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

// MaxFiles is the limit of files in a payload.
const MaxFiles = maxFiles
