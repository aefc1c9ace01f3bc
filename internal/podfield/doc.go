// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podfield has the values, limits and notations of pod fields that several packages of lifecycle must agree on: podapi,
// which validates a pod, and podspec and podenv, which convert it. It does not validate or convert pods. Package containers
// iterates over the containers of a pod.
package podfield
