// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podfield knows what the fields of a pod can say, where the rooms below lifecycle have to agree: podapi, which
// validates a pod, and podspec and podenv, which translate it. It has the paths of the containers of a pod, the values
// and limits of fields, and the notations of a field that has several. It refuses and translates nothing itself. Which
// containers a pod has is known to package containers.
package podfield
