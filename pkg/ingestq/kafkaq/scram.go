package kafkaq

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// scramSession is one login.
type scramSession struct {
	hash scram.HashGeneratorFcn
	talk *scram.ClientConversation
}

// scramClient makes the logins of a mechanism; the others are the library's own.
func scramClient(mechanism string) func() sarama.SCRAMClient {
	hash := scram.SHA256
	if mechanism == MechanismSHA512 {
		hash = scram.SHA512
	}
	return func() sarama.SCRAMClient { return &scramSession{hash: hash} }
}

// Begin implements sarama.SCRAMClient.
func (s *scramSession) Begin(user, password, authz string) error {
	client, err := s.hash.NewClient(user, password, authz)
	if err != nil {
		return err
	}
	s.talk = client.NewConversation()
	return nil
}

// Step implements sarama.SCRAMClient.
func (s *scramSession) Step(challenge string) (string, error) { return s.talk.Step(challenge) }

// Done implements sarama.SCRAMClient.
func (s *scramSession) Done() bool { return s.talk.Done() }
