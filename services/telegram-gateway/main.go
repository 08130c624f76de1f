// Command telegram-gateway is the door for Telegram chats: what is sent to the bot becomes a task, and the chat sees its end.
//
// What a crash leaves of a message, and who mends it:
//
//	died after …      left                                         mended by
//	file received     a file that no row names                     the sweeper; Telegram sends the update again
//	commit            a task that no chat hears of                 the update, sent again: its key finds the task
//	row of the reply  an update that is sent again                 the row's key: it is there
//	command told      an update that is sent again                 the command is told twice: a second message
//	offset moved      a reply to be sent                           the replies of any process
//	reply sent        a reply whose id is not written down         sent once more when its lease has ended: a second message
//	message edited    an edit that is not written down             made once more when the lease has ended: nothing changes
package main

import (
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/telegram-gateway/telegram"
)

func main() {
	process.Main(process.Spec{Name: "telegram-gateway", OperatorAddr: "127.0.0.1:9088"}, telegram.Run)
}
