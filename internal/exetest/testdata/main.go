// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Command main is what the tests of exetest start.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	switch os.Args[1] {
	case "print":
		for _, line := range os.Args[2:] {
			fmt.Println(line)
		}
		os.Exit(3)
	case "wait":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("waiting")
		<-asked
		os.Exit(4)
	case "leave":
		sleep := exec.Command("sleep", os.Args[2])
		sleep.Stdout = os.Stdout
		if err := sleep.Start(); err != nil {
			panic(err)
		}
	}
}
